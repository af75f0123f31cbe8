"""From text to tensor, in order: `tokenize`, `vocabulary`, `vectors`, `batch`."""
