"""What each canonical file must hold: its rows, and the sum of its uncompressed bytes.

The sum is of the text, not of the file: two versions of zlib compress differently.
"""

from dataclasses import dataclass

__all__ = ["CONTENTS", "Content"]


@dataclass(frozen=True, kw_only=True)
class Content:
    """The content of one canonical file."""

    rows: int
    sha256: str | None  # None: not known; the raw download's sum is then the check
    fetched: bool = True  # False: no public source gives this file


# Names are relative to the folder of corpora.
CONTENTS: dict[str, Content] = {
    "mr/all.tsv.gz": Content(
        rows=10_662,
        sha256="47c454903dd356bf505adf98e0ccb2af05d77ed41caec8555a43c14094001a98",
    ),
    "subj/all.tsv.gz": Content(
        rows=10_000,
        sha256="879a7d918ef78c9744b6d5954f8b0a506a26cfd3d4010a1a68fc80c9c564bbb3",
    ),
    "cr/all.tsv.gz": Content(
        rows=3_771,
        sha256="4c21f00215bdadbaa9bd6a012d1d1e788b113f43cef4e70c844f5e045c5f67bc",
    ),
    "trec/train.tsv.gz": Content(
        rows=5_452,
        sha256="0c35c0ad80b2667b10ce8f0beab4e4e6aa72e13bbc3c6b3ffcb10def7fb6428b",
    ),
    "trec/test.tsv.gz": Content(
        rows=500,
        sha256="bc8b9b5aaa3617167b8ff2a5a7028bb7e8a8fb0fc06162a7db9b15566cc0424d",
    ),
    "trec/train_fine.tsv.gz": Content(
        rows=5_452,
        sha256="4428b0118135b9122ac9671f66fe7fd45c61b08beacb591ddbdc2a1a09ea5834",
    ),
    "trec/test_fine.tsv.gz": Content(
        rows=500,
        sha256="362f949499f30ea9c006498007971397ad6c9a46c75d598ce7b5729673785de3",
    ),
    "sst2/train.tsv.gz": Content(
        rows=6_920,
        sha256="ec8ecbeb386bc783638e5bc7e9a55d60a34b8b7bece1dc5e20768a863aff8d94",
    ),
    "sst2/dev.tsv.gz": Content(
        rows=872,
        sha256="be6e0d2979c641401964e652a2740531ead91135c8bb6dc159fa6f6dfe562d33",
    ),
    "sst2/test.tsv.gz": Content(
        rows=1_821,
        sha256="97de6dc35e3943ba09f247bb501d12c1e89ed71b88ec223d1e4bb5acf88e9792",
    ),
    "sst2/train_phrases.tsv.gz": Content(
        rows=76_961,
        sha256="b45b5bdad42637558ef51e1d88cd8703691a07498cc40579b73cac919493c84c",
    ),
    "sst/train_fine.tsv.gz": Content(
        rows=8_544,
        sha256="de4491f02859059af3f2416a0d9f71b5e96adf3eecba3562575398ff4da47573",
    ),
    "sst/dev_fine.tsv.gz": Content(
        rows=1_101,
        sha256="85a6e2492e62471822e6b2a7d7592612741d14a09a8d39a2a744185bb20f146f",
    ),
    "sst/test_fine.tsv.gz": Content(
        rows=2_210,
        sha256="019cffef5af1897f5bf29dc0a61177498e810228b2103e8d7616cef324407c3d",
    ),
    "sst/trees/train.txt.gz": Content(
        rows=8_544,
        sha256="e2f3f41b0b1e6d4dddc0effe3bfc2d27ed8928079aa9a03d652311614fc5feb7",
    ),
    "sst/trees/dev.txt.gz": Content(
        rows=1_101,
        sha256="0e9336aed6e4730e19f58d00a77b3f0297efdb755f7b5e598c98a05e3f97ea40",
    ),
    "sst/trees/test.txt.gz": Content(
        rows=2_210,
        sha256="6e54806dee95cf80cd918e7dfb3f6770f6df24bf826f289a4d1f709e1c8f6761",
    ),
    "ag_news/train.tsv.gz": Content(rows=120_000, sha256=None),
    "ag_news/test.tsv.gz": Content(
        rows=7_600,
        sha256="da8918350137cd8eaba406e9562ec9270062a4f14a8c88f1da4962b6830c5695",
    ),
    "ag_news/train_subset.tsv.gz": Content(
        rows=60_343,
        sha256="40ba697a4b6a5f22491a16e09f55e70f569a0fc175d2906c9cf4bb5d7fb112fb",
        fetched=False,
    ),
    "reuters/documents.jsonl.gz": Content(
        rows=10_789,
        sha256="adbc615901c974c50d80d62db2268f4dadbf783c63e845b7685e3ced2aacbbb2",
    ),
}
