"""Commands that look after results: verify, check, gc, bundle, lineage, prefetch, top."""
