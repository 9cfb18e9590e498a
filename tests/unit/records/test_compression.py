"""Five codecs, what they take from other writers, and how they refuse garbage and bombs."""

import gzip
import os
import subprocess
import sys

import cramjam
import pytest

from headrace.records.compression import (
    CODEC_NAMES,
    RATIO_FREE_BYTES,
    Codec,
    codec_of,
    compress,
    decompress,
    uncompressed_bytes_limit,
)
from headrace.records.errors import BadCompression, DecompressionBomb, UnsupportedCodec

COMPRESSING = [codec for codec in Codec if codec]
MIB = 1 << 20


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize(
    "data",
    [b"", b"x", b"words and words " * 10_000, os.urandom(100_000), bytes(32 * 1024), bytes(32 * 1024 + 1)],
    ids=["empty", "one", "words", "noise", "a block", "more than a block"],
)
def test_what_goes_in_comes_out(codec: Codec, data: bytes) -> None:
    assert decompress(codec, compress(codec, data)) == data
    assert decompress(codec, memoryview(bytearray(compress(codec, memoryview(data))))) == data


def test_names_are_those_of_the_setting() -> None:
    assert {name: int(codec) for name, codec in CODEC_NAMES.items()} == {
        "none": 0,
        "gzip": 1,
        "snappy": 2,
        "lz4": 3,
        "zstd": 4,
    }
    with pytest.raises(UnsupportedCodec):
        codec_of(5)
    with pytest.raises(UnsupportedCodec):
        decompress(7, b"")


def test_snappy_is_written_in_xerial_frames_and_read_raw_too() -> None:
    data = b"snappy " * 10_000
    framed = compress(Codec.SNAPPY, data)
    assert framed.startswith(b"\x82SNAPPY\0" + bytes([0, 0, 0, 1, 0, 0, 0, 1]))
    assert decompress(Codec.SNAPPY, bytes(cramjam.snappy.compress_raw(data))) == data


def test_lz4_blocks_are_independent_and_64_kib() -> None:
    """Kafka's own reader refuses linked blocks."""
    frame = compress(Codec.LZ4, b"lz4 " * 100_000)
    assert frame[:4] == bytes.fromhex("04224d18")
    assert frame[4] & 0x20
    assert frame[5] == 0x40


def test_lz4_linked_blocks_and_content_checksums_of_others_are_read() -> None:
    frame = cramjam.lz4.Compressor(content_checksum=True, block_linked=True)
    frame.compress(b"lz4 " * 100_000)
    assert decompress(Codec.LZ4, bytes(frame.finish())) == b"lz4 " * 100_000


def test_zstd_without_a_content_size_is_read() -> None:
    """Streaming writers, Java's among them, do not know the size when they write the header."""
    frame = cramjam.zstd.Compressor()
    for _ in range(100):
        frame.compress(b"zstd " * 1_000)
    assert decompress(Codec.ZSTD, bytes(frame.finish())) == b"zstd " * 100_000


def test_several_gzip_members_are_one_stream() -> None:
    assert decompress(Codec.GZIP, gzip.compress(b"one") + gzip.compress(b"two")) == b"onetwo"


@pytest.mark.parametrize("codec", COMPRESSING)
def test_garbage_is_refused_by_type(codec: Codec) -> None:
    good = compress(codec, b"some words, some more words, and again some words " * 100)
    for data in (
        b"",
        b"\xff" * 50,
        good[:-5],
        good[: len(good) // 2],
        good + b"\xff" * 9,
        b"\x82SNAPPY\0",
        good[1:],
    ):
        with pytest.raises(BadCompression):
            decompress(codec, data)


@pytest.mark.parametrize(
    "data",
    [
        b"\x82SNAPPY\0" + bytes(8) + b"\0\0",
        b"\x82SNAPPY\0" + bytes(8) + b"\x7f\xff\xff\xff1234",
        b"\x82SNAPPY\0" + bytes(8) + b"\xff\xff\xff\xff1234",
        b"\x82SNAPPY\0" + bytes(8) + bytes(8),
    ],
)
def test_broken_xerial_frames_are_refused(data: bytes) -> None:
    with pytest.raises(BadCompression):
        decompress(Codec.SNAPPY, data)


@pytest.mark.parametrize("codec", COMPRESSING)
def test_the_size_bound_is_exact(codec: Codec) -> None:
    data = compress(codec, bytes(300_000))
    assert len(decompress(codec, data, bytes_max=300_000)) == 300_000
    with pytest.raises(DecompressionBomb):
        decompress(codec, data, bytes_max=299_999)


def test_small_results_are_free_of_the_ratio() -> None:
    assert uncompressed_bytes_limit(10, bytes_max=64 * MIB, ratio_max=100) == RATIO_FREE_BYTES
    assert uncompressed_bytes_limit(10 * MIB, bytes_max=64 * MIB, ratio_max=100) == 64 * MIB
    assert uncompressed_bytes_limit(MIB, bytes_max=1 << 40, ratio_max=100) == 100 * MIB


def bomb(codec: Codec) -> bytes:
    """Two GiB of zeros, or what claims to be."""
    if codec is Codec.SNAPPY:
        return b"\x80\x80\x80\x80\x08" + b"\xfe\x01\x00" * 1_000  # the length it claims is all that matters
    if codec is Codec.LZ4:
        one = compress(codec, bytes(64 * MIB))
        return one[:7] + one[7:-4] * 32 + one[-4:]
    return compress(codec, bytes(64 * MIB)) * 32


# A process of its own, since the peak of this one may already be higher than what is asked about here.
OPEN_A_BOMB = """
import resource, sys
from headrace.records.compression import decompress
from headrace.records.errors import DecompressionBomb
data = sys.stdin.buffer.read()
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    decompress(int(sys.argv[1]), data, bytes_max=64 << 20, ratio_max=1_000)
except DecompressionBomb:
    print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""


@pytest.mark.parametrize("codec", COMPRESSING)
def test_a_bomb_of_two_gigabytes_is_refused_within_bounded_memory(codec: Codec) -> None:
    """One room of 64 MiB is the most that is held, and a little for the codec itself."""
    run = subprocess.run(
        [sys.executable, "-c", OPEN_A_BOMB, str(int(codec))],
        input=bomb(codec),
        capture_output=True,
        check=False,
    )
    assert run.stderr == b""
    assert int(run.stdout) < 80
