"""The words of the demonstration's load: the system prompts of its three tenants, their questions, an agent's log."""

from __future__ import annotations

from collections.abc import Iterator

PRODUCTS = (
    "kettle",
    "desk lamp",
    "bicycle pump",
    "rain coat",
    "camp stove",
    "wall clock",
    "ear protectors",
    "tool box",
)
CLAUSES = ("deposit", "notice period", "repairs", "subletting", "heating costs", "garden use", "key return", "pets")
CITIES = ("Oslo", "Porto", "Graz", "Lyon", "Gdansk", "Turin", "Aarhus", "Bilbao")


def shop_system_prompt() -> str:
    """A support helper's rules, about 550 tokens."""
    rules = [
        f"Rule {number}. A {product} may be sent back within {14 + number} days if its box is whole; "
        f"for a broken {product} offer a new one first and a refund second, "
        f"and name the shelf code S-{number}{number + 3}."
        for number, product in enumerate((PRODUCTS * 2)[:11], 1)
    ]
    return "\n".join(["You are the support helper of a small household shop. Answer in two sentences.", *rules])


def lease_system_prompt() -> str:
    """A reader of leases, about 520 tokens."""
    rules = [
        f"Clause {number}, {clause}: quote the clause before you explain it, say who must act and by which day, "
        f"and never promise an outcome on the {clause}."
        for number, clause in enumerate((CLAUSES * 2)[:14], 1)
    ]
    return "\n".join(["You explain flat leases to tenants in plain words.", *rules])


def travel_system_prompt(turn: int) -> str:
    """A travel desk whose first line is a clock, about 530 tokens; two turns pass in a minute, from 14:05 on."""
    hour, past = divmod(14 * 60 + 5 + turn // 2, 60)
    rules = [
        f"For {city}: night trains leave from platform {number}, the desk opens at {6 + number % 4} in the morning, "
        f"and a seat with a table costs {number + 2} more."
        for number, city in enumerate((CITIES * 2)[:14], 1)
    ]
    clock = f"Current time: Monday, 3 November 2025 {hour:02d}:{past:02d} UTC"
    return "\n".join([clock, "You are the travel desk of a rail company. Answer in two sentences.", *rules])


def question(tenant: str, conversation: int, turn: int) -> str:
    """One user turn of about 600 tokens: a story with a question at its end."""
    subject = {"shop": PRODUCTS, "lease": CLAUSES, "travel": CITIES}[tenant][(conversation * 3 + turn) % 8]
    details = " ".join(_details(subject, conversation, turn))
    return f"{details} What do you advise about the {subject} now, in question {turn + 1}?"


def tool_result(step: int) -> str:
    """What a tool answers to the agent, about 450 tokens of a build log."""
    lines = [
        f"[{step:02d}.{line:02d}] compiling unit {step * 7 + line} of stage {step}: {20 + line * step} symbols, "
        f"{line % 3} warnings"
        for line in range(1, 18)
    ]
    return "\n".join(["$ make stage", *lines, "done"])


def agent_system_prompt() -> str:
    """A coding agent's rules, about 270 tokens."""
    rules = [
        f"Step rule {number}: before stage {number} read the log of stage {number - 1}, name the first warning, "
        "and change one file at a time."
        for number in range(1, 9)
    ]
    return "\n".join(["You are a build agent. Say in one sentence what to run next.", *rules])


def _details(subject: str, conversation: int, turn: int) -> Iterator[str]:
    yield f"This is customer {100 + conversation} again about the {subject}."
    for point in range(18):
        yield (
            f"Point {point + 1}: on day {conversation + turn + point + 1} the {subject} was checked by "
            f"person {conversation * 5 + turn * 3 + point}, who wrote down {turn * 11 + point * 7 + conversation} "
            f"and asked for an answer before the end of week {turn + point + 2}."
        )
