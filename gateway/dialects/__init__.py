"""The dialects that callers speak: what an error, a stream and a usage block look like in each."""
