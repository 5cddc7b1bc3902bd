// The npm clients against a gateway: each scenario prints one line of JSON, {name, ok, why}. Arguments: base URL, key.
import assert from "node:assert/strict";
import OpenAI from "openai";
import { createOpenAI } from "@ai-sdk/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { generateText, stepCountIs, streamText, tool } from "ai";
import { z } from "zod";

const [url, apiKey] = process.argv.slice(2);
const baseURL = `${url}/v1`;
const MODEL = "vllm";
const TEXT = "Rain is likely 北京🙂.";
const said = (content) => [{ role: "user", content }];
const parameters = { type: "object", properties: { city: { type: "string" } }, required: ["city"] };
const tools = [{ type: "function", function: { name: "weather", description: "Tells it.", parameters } }];

const openai = new OpenAI({ baseURL, apiKey, timeout: 20_000 });
const compatible = createOpenAICompatible({ name: "homing", baseURL, apiKey, includeUsage: true })(MODEL);
const official = createOpenAI({ baseURL, apiKey });
const weather = tool({
  description: "Tells it.",
  inputSchema: z.object({ city: z.string() }),
  execute: async ({ city }) => `rain in ${city}`,
});

async function collected(stream, pick) {
  let text = "";
  for await (const piece of stream) text += pick(piece) ?? "";
  return text;
}

async function fails(run, check) {
  await assert.rejects(run, (error) => (check(error), true));
}

const scenarios = {
  async openai_chats_over_a_simulated_worker() {
    const asked = { model: "smollm2", messages: said("Tell it."), max_tokens: 6, temperature: 0 };
    const whole = await openai.chat.completions.create(asked);
    assert.equal(whole.usage.completion_tokens, 6);
    const stream = await openai.chat.completions.create({ ...asked, stream: true });
    assert.equal(await collected(stream, (c) => c.choices[0].delta.content), whole.choices[0].message.content);
  },
  async openai_streams_with_usage() {
    const options = { stream: true, stream_options: { include_usage: true } };
    const stream = await openai.chat.completions.create({ model: MODEL, messages: said("Hi"), ...options });
    let usage;
    const text = await collected(stream, (c) => ((usage = c.usage ?? usage), c.choices[0]?.delta.content));
    assert.equal(text, TEXT);
    assert.equal(usage.prompt_tokens_details.cached_tokens, 32);
  },
  async openai_calls_tools() {
    const runner = openai.chat.completions.stream({ model: MODEL, messages: said("Hi"), tools });
    const call = (await runner.finalChatCompletion()).choices[0].message.tool_calls[0];
    assert.deepEqual([call.id, JSON.parse(call.function.arguments)], ["c1", { city: "Oslo" }]);
  },
  async openai_responses() {
    const whole = await openai.responses.create({ model: MODEL, input: "Hi", instructions: "Be brief." });
    assert.equal(whole.output_text, TEXT);
    assert.equal(whole.usage.input_tokens_details.cached_tokens, 32);
    const final = await openai.responses.stream({ model: MODEL, input: "Hi" }).finalResponse();
    assert.equal(final.output_text, TEXT);
  },
  async openai_raises_its_own_errors() {
    await fails(
      () => openai.chat.completions.create({ model: "gpt-9", messages: said("Hi") }),
      (error) => assert.deepEqual([error.status, error.code], [404, "model_not_found"]),
    );
    await fails(
      () => new OpenAI({ baseURL, apiKey: "nobody" }).models.list(),
      (error) => assert.deepEqual([error.status, error.code], [401, "invalid_api_key"]),
    );
  },
  async openai_tries_again_when_told_when() {
    const answer = await openai.chat.completions.create({ model: MODEL, messages: said("refuse twice, npm openai") });
    assert.equal(answer.choices[0].message.content, TEXT);
  },
  async openai_hears_of_a_broken_stream() {
    const stream = await openai.chat.completions.create({ model: MODEL, messages: said("break"), stream: true });
    await fails(() => collected(stream, () => ""), (error) => assert.match(error.message, /broke off/));
    const events = await openai.responses.create({ model: MODEL, input: "break", stream: true });
    await fails(() => collected(events, () => ""), (error) => assert.match(error.message, /broke off/));
  },
  async openai_reads_heartbeats() {
    const stream = await openai.chat.completions.create({ model: MODEL, messages: said("slow"), stream: true });
    assert.equal(await collected(stream, (c) => c.choices[0].delta.content), TEXT);
  },
  async openai_leaves_a_stream() {
    const stream = await openai.chat.completions.create({ model: MODEL, messages: said("endless"), stream: true });
    for await (const _ of stream) break;
    stream.controller.abort();
  },
  async ai_sdk_generates_with_usage() {
    const { text, usage } = await generateText({ model: compatible, prompt: "Hi", system: "Be brief." });
    assert.deepEqual([text, usage.inputTokens, usage.outputTokens], [TEXT, 40, 4]);
    assert.equal(usage.inputTokenDetails.cacheReadTokens, 32);
  },
  async ai_sdk_streams_with_usage() {
    const result = streamText({ model: compatible, prompt: "slow" });
    assert.equal(await collected(result.textStream, (piece) => piece), TEXT);
    assert.equal((await result.usage).outputTokens, 4);
  },
  async ai_sdk_runs_tools_to_the_end() {
    for (const model of [compatible, official.chat(MODEL), official.responses(MODEL)]) {
      const options = { model, prompt: "Hi", tools: { weather }, stopWhen: stepCountIs(3) };
      const { text, steps } = await generateText({ ...options, providerOptions: { openai: { store: false } } });
      assert.equal(text, TEXT);
      assert.equal(steps[0].toolResults[0].output, "rain in Oslo");
    }
  },
  async ai_sdk_streams_responses() {
    const result = streamText({ model: official.responses(MODEL), prompt: "slow" });
    assert.equal(await collected(result.textStream, (piece) => piece), TEXT);
    assert.equal((await result.usage).inputTokenDetails.cacheReadTokens, 32);
  },
  async ai_sdk_raises_and_tries_again() {
    const { text } = await generateText({ model: compatible, prompt: "refuse twice, ai sdk" });
    assert.equal(text, TEXT);
    await fails(
      () => generateText({ model: official.responses("gpt-9"), prompt: "Hi" }),
      (error) => assert.deepEqual([error.statusCode, error.isRetryable], [404, false]),
    );
  },
  async ai_sdk_hears_of_a_broken_stream() {
    for (const model of [compatible, official.responses(MODEL)]) {
      let heard;
      const onError = ({ error }) => (heard = error);
      const result = streamText({ model, prompt: "break", onError, maxRetries: 0 });
      const last = [];
      for await (const part of result.fullStream) last.push(part.type);
      assert.match(JSON.stringify(heard, Object.getOwnPropertyNames(Object(heard))) + heard, /broke off/);
      assert.ok(last.includes("error"));
    }
  },
  async ai_sdk_leaves_a_stream() {
    const controller = new AbortController();
    const options = { model: compatible, prompt: "endless", abortSignal: controller.signal, onError() {} };
    for await (const _ of streamText(options).textStream) controller.abort();
  },
};

for (const [name, run] of Object.entries(scenarios)) {
  const line = await run().then(
    () => ({ name, ok: true }),
    (error) => ({ name, ok: false, why: String(error?.stack ?? error).slice(0, 2000) }),
  );
  console.log(JSON.stringify(line));
}
