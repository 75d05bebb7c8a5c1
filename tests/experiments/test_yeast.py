"""The reader of the original yeast download, on small files of its form, against plain NumPy."""

import gzip
import tempfile
import warnings
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mkmc_prob.errors import IndefiniteKernelError, KernelError, LabelError, MKMCError, MKMCWarning
from mkmc_prob.experiments import yeast
from mkmc_prob.experiments.yeast import PAPER_SCORES, load_yeast

KERNELS = ["B", "SW", "Pfam", "FFT", "LI", "D", "E"]
CENTERED = {"B", "SW", "FFT", "LI", "E"}
PROTEINS = ["YAL001C", "YAL002W", "YBR003W", "YBR004C", "YCL005C", "YCL006W", "YDR007W", "YDR008C"]
#: In another order than the kernels' rows; two unknown.
LABELS = {
    "YDR007W": -1,
    "YAL001C": 1,
    "YCL005C": 0,
    "YBR004C": -1,
    "YAL002W": -1,
    "YDR008C": 0,
    "YBR003W": 1,
    "YCL006W": -1,
}
ANNOTATED = ["YDR007W", "YAL001C", "YBR004C", "YAL002W", "YBR003W", "YCL006W"]


def as_text(matrix, ids, columns=None):
    """Write a matrix in the download's form: tabs, text IDs in the first row and column."""
    lines = ["\t".join(["corner", *(ids if columns is None else columns)])]
    lines += ["\t".join([name, *map(repr, row)]) for name, row in zip(ids, matrix, strict=True)]
    return "\n".join(lines) + "\n"


def labels_text(labels):
    return "".join(f"{name}\t{label}\n" for name, label in labels.items())


def matrices(seed=0):
    """Return seven kernels of very different scales that are far from centered."""
    rng = np.random.default_rng(seed)
    found = {}
    for k, name in enumerate(KERNELS):
        x = rng.normal(1.0, 1.0, (len(PROTEINS), 12))
        found[name] = 10.0 ** (k - 3) * (x @ x.T + x @ x.T).round(6)
    return found


def write(folder, kernels=None, labels=None):
    folder = Path(folder)
    for name, matrix in (matrices() if kernels is None else kernels).items():
        (folder / f"{name}.txt").write_text(as_text(matrix.tolist(), PROTEINS))
    (folder / "labels.txt").write_text(labels_text(LABELS if labels is None else labels))
    return folder


def by_hand(matrix, name, objects=ANNOTATED):
    """Select, center where it is done, normalize: with the matrices of the formulas."""
    place = [PROTEINS.index(protein) for protein in objects]
    block = np.array([[matrix[i, j] for j in place] for i in place])
    if name in CENTERED:
        h = np.eye(len(place)) - np.ones((len(place), len(place))) / len(place)
        block = h @ block @ h
    lengths = np.diag(1 / np.sqrt(np.diagonal(block)))
    return lengths @ block @ lengths


def load(folder, **options):
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*the paper has 2,318 and 497", MKMCWarning)
        return load_yeast(folder, **options)


def check(problem, seed=0):
    kernels, classes = problem
    assert kernels.dims == ("kernel", "object", "object_bis")
    assert kernels["kernel"].values.tolist() == KERNELS
    assert kernels["object"].values.tolist() == ANNOTATED
    assert kernels["object_bis"].values.tolist() == ANNOTATED
    assert kernels.dtype == np.float64
    assert (kernels.values == kernels.values.transpose(0, 2, 1)).all()
    assert (np.diagonal(kernels.values, axis1=1, axis2=2) == 1).all()
    for name, matrix in matrices(seed).items():
        expected = by_hand(matrix, name)
        np.testing.assert_allclose(kernels.sel(kernel=name), expected, atol=1e-12, err_msg=name)
    assert classes.dims == ("object",)
    assert classes.dtype.kind == "i"
    assert classes.to_series().to_dict() == {p: n for p, n in LABELS.items() if n}


def test_values_and_classes(tmp_path):
    check(load(write(tmp_path)))


def test_means_are_those_of_the_annotated_proteins(tmp_path):
    # Had the unknown been dropped last, what is centered would be something else.
    matrix = matrices()["B"]
    h = np.eye(len(PROTEINS)) - 1 / len(PROTEINS)
    other = by_hand(h @ matrix @ h, "Pfam")
    found = load(write(tmp_path)).kernels.sel(kernel="B").values
    assert np.abs(found - other).max() > 0.01
    np.testing.assert_allclose(found, by_hand(matrix, "B"), atol=1e-12)


@settings(max_examples=20)  # each with another order in every file
@given(st.data())
def test_the_order_of_ids_in_the_kernels_does_not_matter(data):
    with tempfile.TemporaryDirectory() as folder:
        write(folder)
        for name, matrix in matrices().items():
            rows = data.draw(st.permutations(range(len(PROTEINS))))
            columns = data.draw(st.permutations(range(len(PROTEINS))))
            text = as_text(
                matrix[np.ix_(rows, columns)].tolist(),
                [PROTEINS[i] for i in rows],
                [PROTEINS[i] for i in columns],
            )
            (Path(folder) / f"{name}.txt").write_text(text)
        check(load(folder))


@pytest.mark.parametrize("suffix", [".txt", ".tsv", ".tab", ".txt.gz", ".tsv.gz", ".TXT"])
@pytest.mark.parametrize("lower", [False, True])
def test_names_of_files(suffix, lower, tmp_path):
    write(tmp_path)
    for old in list(tmp_path.iterdir()):
        content = old.read_bytes()
        old.unlink()
        stem = old.stem.lower() if lower else old.stem
        content = gzip.compress(content) if suffix.endswith(".gz") else content
        (tmp_path / f"{stem}{suffix}").write_bytes(content)
    (tmp_path / "SW.png").touch()
    (tmp_path / "README.txt").touch()
    check(load(tmp_path))


def test_files_with_names_of_their_own(tmp_path):
    write(tmp_path)
    (tmp_path / "more").mkdir()
    (tmp_path / "B.txt").rename(tmp_path / "more" / "blast matrix.dat")
    (tmp_path / "labels.txt").rename(tmp_path / "membrane")
    elsewhere = tmp_path / "more" / "E"
    (tmp_path / "E.txt").rename(elsewhere)
    files = {"B": "more/blast matrix.dat", "labels": Path("membrane"), "E": elsewhere}
    check(load(str(tmp_path), files=files))


def test_a_named_file_goes_before_the_default(tmp_path):
    write(tmp_path)
    (tmp_path / "D.txt").rename(tmp_path / "right.txt")
    (tmp_path / "D.txt").write_text("nothing of use")
    check(load(tmp_path, files={"D": "right.txt"}))


def plain(write_label=str, end="\n"):
    return "".join(f"{name}\t{write_label(n)}{end}" for name, n in LABELS.items())


LABEL_LAYOUTS = {
    "signs": (plain("{:+d}".format), None),
    "decimals": (plain("{:.1f}".format), None),
    "header": ("ORF\tmembrane\n" + plain(), None),
    "empty corner": ("\tmembrane\n" + plain(), None),
    "header that is asked for": ("ORF\tmembrane\n" + plain(), "membrane"),
    "Windows": ("\ufeff" + plain(end="\r\n"), None),
    "quotes": (plain().replace("\t", '"\t"').replace("\n", '"\n"').join(['"', ""])[:-1], None),
    "blanks": (plain(" {} ".format), None),
    "blank lines": ("\n" + plain() + "\n\n", None),
    "no last line end": (plain()[:-1], None),
    "several columns": (
        "ORF\tribosomal\tmembrane\n" + "".join(f"{p}\t0\t{n}\n" for p, n in LABELS.items()),
        "membrane",
    ),
    "a column of text": (
        "ORF\tgene\tmembrane\n" + "".join(f"{p}\tABC1\t{n}\n" for p, n in LABELS.items()),
        "membrane",
    ),
    "tabs at the ends": (plain(end="\t\t\n"), None),
    "tabs at the ends, header": ("ORF\tmembrane\t\n" + plain(end="\t\n"), None),
    "IDs with blanks": (plain().replace("\t", " \t"), None),
    "unknown left out": ("".join(f"{p}\t{n}\n" for p, n in LABELS.items() if n), None),
    "unknown of no kernel": (plain() + "YXX009W\t0\n", None),
}


@pytest.mark.parametrize(("text", "column"), LABEL_LAYOUTS.values(), ids=LABEL_LAYOUTS)
def test_layouts_of_the_labels(text, column, tmp_path):
    write(tmp_path)
    (tmp_path / "labels.txt").write_text(text, encoding="utf-8", newline="")
    check(load(tmp_path, label_column=column))
    (tmp_path / "labels.txt").rename(tmp_path / "labels.txt.gz")  # plain all the same
    check(load(tmp_path, label_column=column))
    (tmp_path / "labels.txt.gz").write_bytes(gzip.compress(text.encode()))
    check(load(tmp_path, label_column=column))


def test_blanks_around_the_ids_of_a_kernel(tmp_path):
    write(tmp_path)
    padded = [f"{protein} " for protein in PROTEINS]
    (tmp_path / "E.txt").write_text(as_text(matrices()["E"].tolist(), padded))
    check(load(tmp_path))


def test_tabs_at_the_ends_of_a_kernels_lines_are_named(tmp_path):
    text = (write(tmp_path) / "E.txt").read_text().replace("\n", "\t\n")
    (tmp_path / "E.txt").write_text(text)
    refused(tmp_path, KernelError, str(tmp_path / "E.txt"), "Its first line ends in a tab")


@pytest.mark.parametrize("content", [b"", b" \n\n"])
def test_an_empty_file_of_labels(content, tmp_path):
    (write(tmp_path) / "labels.txt").write_bytes(content)
    refused(tmp_path, KernelError, str(tmp_path / "labels.txt"), "No columns to parse from file")


def test_other_counts_than_the_papers_are_warned_about(tmp_path):
    with pytest.warns(MKMCWarning, match="6 annotated proteins, 2 of them positive; the paper has"):
        load_yeast(write(tmp_path))


def test_the_papers_counts_are_not(tmp_path, monkeypatch):
    assert (yeast.PROTEINS, yeast.POSITIVE) == (2318, 497)
    monkeypatch.setattr(yeast, "PROTEINS", 6)
    monkeypatch.setattr(yeast, "POSITIVE", 2)
    check(load_yeast(write(tmp_path)))  # warnings are errors


def test_a_kernel_that_misses_proteins_stays_incomplete(tmp_path):
    write(tmp_path)
    matrix = matrices()["LI"]
    absent = ["YAL001C", "YBR003W", "YDR008C"]  # two annotated, one unknown
    there = [i for i, protein in enumerate(PROTEINS) if protein not in absent]
    text = as_text(matrix[np.ix_(there, there)].tolist(), [PROTEINS[i] for i in there])
    (tmp_path / "LI.txt").write_text(text)
    pfam = [[str(entry) for entry in row] for row in matrices()["Pfam"].tolist()]
    for i in range(len(PROTEINS)):
        pfam[i][1] = pfam[1][i] = "NA"
    (tmp_path / "Pfam.txt").write_text(as_text(pfam, PROTEINS).replace("'", ""))
    with pytest.warns(MKMCWarning) as caught:
        kernels = load(tmp_path).kernels
    assert [str(w.message) for w in caught] == [
        "of 6 annotated proteins 'Pfam' misses 1 ('YAL002W'); 'LI' misses 2 ('YAL001C', "
        "'YBR003W'). The kernels are incomplete there."
    ]
    seen = [protein for protein in ANNOTATED if protein not in absent]
    found = kernels.sel(kernel="LI")
    np.testing.assert_allclose(
        found.sel(object=seen, object_bis=seen), by_hand(matrix, "LI", seen), atol=1e-12
    )
    assert found.isnull().sum() == 6 * 6 - 4 * 4
    assert kernels.sel(kernel="Pfam").isnull().sum() == 6 * 6 - 5 * 5
    np.testing.assert_allclose(kernels.sel(kernel="E"), by_hand(matrices()["E"], "E"), atol=1e-12)


def test_kernels_as_they_are_in_the_files(tmp_path):
    kernels = load(write(tmp_path), preprocess=False).kernels
    place = [PROTEINS.index(protein) for protein in ANNOTATED]
    for name, matrix in matrices().items():
        assert (kernels.sel(kernel=name) == matrix[np.ix_(place, place)]).all()


def indefinite(scale=0.2):
    """Return kernels whose D has one eigenvalue really below zero on the annotated proteins."""
    kernels = matrices()
    place = [PROTEINS.index(protein) for protein in ANNOTATED]
    values, vectors = np.linalg.eigh(kernels["D"][np.ix_(place, place)])
    step = np.zeros_like(kernels["D"])
    step[np.ix_(place, place)] = (values[0] + scale) * np.outer(vectors[:, 0], vectors[:, 0])
    kernels["D"] = (kernels["D"] - (step + step.T) / 2).round(9)
    return kernels


def test_an_indefinite_kernel_is_refused_with_the_remedy(tmp_path):
    write(tmp_path, indefinite())
    with pytest.raises(IndefiniteKernelError, match=r"'D'.*repair_spectrum.*repair='clip'"):
        load(tmp_path)


def test_an_indefinite_kernel_is_repaired_before_it_is_normalized(tmp_path):
    kernels = indefinite()
    write(tmp_path, kernels)
    with pytest.warns(MKMCWarning, match="kernel 'D': 1 of 6 eigenvalues below zero"):
        found = load(tmp_path, repair="clip").kernels
    place = [PROTEINS.index(protein) for protein in ANNOTATED]
    values, vectors = np.linalg.eigh(kernels["D"][np.ix_(place, place)])
    assert values[0] < -0.1 < 0 < values[1]
    clipped = vectors[:, 1:] @ np.diag(values[1:]) @ vectors[:, 1:].T
    length = np.sqrt(np.diagonal(clipped))
    np.testing.assert_allclose(
        found.sel(kernel="D"), clipped / np.outer(length, length), atol=1e-12
    )
    assert (np.diagonal(found.sel(kernel="D")) == 1).all()
    assert "kernel 'D'" in found.attrs["repair_spectrum"]
    for name in set(KERNELS) - {"D"}:
        np.testing.assert_allclose(found.sel(kernel=name), by_hand(kernels[name], name), atol=1e-12)


def test_repair_changes_nothing_where_nothing_is_wrong(tmp_path):
    check(load(write(tmp_path), repair="flip"))


def test_an_object_without_length_is_named_and_the_way_out(tmp_path):
    kernels = matrices()
    kernels["Pfam"][2, :] = kernels["Pfam"][:, 2] = 0
    write(tmp_path, kernels)
    with pytest.raises(KernelError, match=r"'Pfam'.*'YBR003W'.*preprocess=False") as caught:
        load(tmp_path)
    assert not isinstance(caught.value, IndefiniteKernelError)


def refused(folder, error, *parts, **options):
    with pytest.raises(error) as caught:
        load(folder, **options)
    assert type(caught.value) is error
    for part in parts:
        assert part in str(caught.value), part


def test_all_missing_files_are_named(tmp_path):
    refused(tmp_path / "no", FileNotFoundError, str(tmp_path / "no"), "no such folder")
    refused(3, MKMCError, "path: 3 found")
    refused(tmp_path, FileNotFoundError, "'B'", "'labels'", "holds no files")
    write(tmp_path)
    for name in "SW.txt", "E.txt", "labels.txt":
        (tmp_path / name).unlink()
    with pytest.raises(FileNotFoundError) as caught:
        load(tmp_path, files={"D": "diffusion.txt"})
    message = str(caught.value)
    assert message.startswith(f"{tmp_path}: no file for ")
    for part in "'SW' (SW.txt)", "'E' (E.txt)", "'D' (diffusion.txt)", "'labels' (labels.txt)":
        assert part in message
    for name in "B", "Pfam", "FFT", "LI":
        assert f"{name!r} (" not in message
    assert "'Pfam.txt'" in message  # what is there
    assert "files={" in message


def test_two_files_for_one_kernel(tmp_path):
    write(tmp_path)
    (tmp_path / "sw.tab.gz").touch()
    refused(tmp_path, MKMCError, "'SW.txt'", "'sw.tab.gz'", "files={'SW': ")


def test_unknown_options(tmp_path):
    write(tmp_path)
    refused(tmp_path, LabelError, "'pfam'", "Pfam", files={"pfam": "Pfam.txt"})
    refused(tmp_path, KernelError, "repair: 'cut'", "'clip'", repair="cut")
    refused(tmp_path, MKMCError, "preprocess=False", repair="clip", preprocess=False)


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        (plain() + "YAL002W\t1\n", ("'YAL002W'", "more than once")),
        (plain().replace("YBR004C\t-1", "YBR004C\t2"), ("'YBR004C'", "'2'", "+1, -1 or 0")),
        (plain().replace("YBR004C\t-1", "YBR004C\tyes"), ("'YBR004C'", "'yes'", "+1, -1 or 0")),
        (plain().replace("YBR004C\t-1", "YBR004C"), ("'YBR004C'", "''", "+1, -1 or 0")),
        (plain().replace("YBR004C\t-1", "YBR004C\t0.5"), ("'YBR004C'", "'0.5'")),
        (plain().replace("-1", "0").replace("1\n", "0\n"), ("no protein has the label",)),
        (plain().replace("\t", " "), ("one column found", "'YDR007W -1'", "a tab")),
        (plain().replace("YDR007W\t-1", "YDR007W\t?"), ("'YDR007W'", "header", "'B'")),
        (plain().replace("YDR007W\t-1", "YDR007W\t"), ("'YDR007W'", "header", "'B'")),
        (plain() + "YXX009W\t1\nYXX010C\t-1\n", ("'YXX009W', 'YXX010C'", "in no kernel")),
        ("ORF\ta\tb\n" + plain().replace("\n", "\t0\n"), ("'a', 'b'", "label_column")),
        (plain().replace("\n", "\t0\n"), ("'column 2, no header'", "label_column")),
    ],
)
def test_labels_that_are_refused(text, parts, tmp_path):
    write(tmp_path)
    (tmp_path / "labels.txt").write_text(text)
    refused(tmp_path, LabelError, str(tmp_path / "labels.txt"), *parts)


def test_label_columns_that_are_refused(tmp_path):
    write(tmp_path)
    refused(tmp_path, LabelError, "label_column='membrane'", "no header", label_column="membrane")
    (tmp_path / "labels.txt").write_text("ORF\tmembrane\n" + plain())
    refused(tmp_path, LabelError, "'ribosome'", "'membrane'", label_column="ribosome")
    refused(tmp_path, LabelError, "'ORF'", "'membrane'", label_column="ORF")


@pytest.mark.parametrize("content", [b"\xff\xfe\x00", b"\x1f\x8bnot gzip", b"a\t1\nb\t1\t2\n"])
def test_labels_that_cannot_be_read(content, tmp_path):
    write(tmp_path)
    name = "labels.txt"
    if content.startswith(b"\x1f"):
        (tmp_path / name).unlink()
        name = "labels.txt.gz"
    (tmp_path / name).write_bytes(content)
    refused(tmp_path, KernelError, str(tmp_path / name), "not readable as tab-delimited text")


def replaced(old, new, count=1):
    return lambda text: text.replace(old, new, count)


@pytest.mark.parametrize(
    ("change", "error", "parts"),
    [
        (replaced("\nYAL002W\t", "\nYAL001C\t"), LabelError, ("'YAL001C'", "more than once")),
        (replaced("\tYAL002W\t", "\tYAL001C\t"), LabelError, ("'YAL001C'", "more than once")),
        (replaced("\nYAL002W\t", "\nYXX002W\t"), LabelError, ("'YAL002W'", "'YXX002W'")),
        (lambda text: text[: text.rstrip().rindex("\n")], KernelError, ("7 rows", "8 columns")),
        (lambda text: text.rstrip() + "\t1\n", KernelError, ("line 9", "10 cells")),
        (
            replaced("\nYBR003W\t", "\nYBR003W\tx"),
            KernelError,
            ("'YBR003W'", "'YAL001C'", "is not a number"),
        ),
        (lambda text: "1\t0\n0\t1\n", LabelError, ("no IDs found",)),
        (lambda text: "", KernelError, ("empty",)),
        (lambda text: "\ta\tb\na\t2\t1\nb\t1\t2\n", KernelError, ("'SW' has none of the 6",)),
    ],
)
def test_kernels_that_are_refused(change, error, parts, tmp_path):
    write(tmp_path)
    path = tmp_path / "SW.txt"
    path.write_text(change(path.read_text()))
    refused(tmp_path, error, str(path), *parts)


def test_a_kernel_that_is_not_symmetric(tmp_path):
    kernels = matrices()
    kernels["FFT"][0, 1] *= 1.001
    write(tmp_path, kernels)
    refused(tmp_path, KernelError, "'FFT'", "not symmetric", "'YAL001C'", "'YAL002W'")


def test_what_the_paper_reports():
    at = PAPER_SCORES.sel
    assert at(train_size=200)["roc"].to_series().to_dict() == {
        "mkmc": 0.779,
        "zero": 0.721,
        "mean": 0.745,
    }
    assert at(train_size=1000)["roc"].to_series().to_dict() == {
        "mkmc": 0.848,
        "zero": 0.836,
        "mean": 0.832,
    }
    p_values = PAPER_SCORES["p_two_sample"].stack(cell=["train_size", "completion"]).dropna("cell")
    assert p_values.to_series().to_dict() == {
        (200, "zero"): 8.32e-5,
        (200, "mean"): 1.40e-3,
        (1000, "zero"): 3.45e-2,
        (1000, "mean"): 4.60e-3,
    }
    assert PAPER_SCORES.attrs["strength"] == 0.001
