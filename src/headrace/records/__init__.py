"""Record batches (message format 2): headers, checksums, codecs, encoding and decoding."""
