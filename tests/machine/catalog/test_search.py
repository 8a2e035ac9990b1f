from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oomph.errors import AmbiguousName, UnknownName
from oomph.machine import (
    CloudMachine,
    GpuSpec,
    cloud_machines_with,
    find_cloud_machine,
    find_gpu,
    find_in_catalog,
    gpu_specs,
)
from oomph.machine.catalog._search import _key


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("3060", "GeForce RTX 3060 12GB"),
        ("RTX 3060", "GeForce RTX 3060 12GB"),
        ("NVIDIA GeForce RTX 3060", "GeForce RTX 3060 12GB"),
        ("rtx3060 12gb", "GeForce RTX 3060 12GB"),
        ("rtx 3060 8 GB", "GeForce RTX 3060 8GB"),
        ("rtx-3060-ti", "GeForce RTX 3060 Ti"),
        ("1080ti", "GeForce GTX 1080 Ti"),
        ("4090 laptop", "GeForce RTX 4090 Laptop"),
        ("A100-80", "A100 SXM4 80GB"),
        ("NVIDIA A100-SXM4-80GB", "A100 SXM4 80GB"),
        ("NVIDIA H100 80GB HBM3", "H100 SXM5 80GB"),
        ("Tesla V100-SXM2-16GB", "V100 SXM2 16GB"),
        ("Tesla T4", "T4"),
        ("h200", "H200"),
        ("7900xtx", "Radeon RX 7900 XTX"),
        ("p4d.24xlarge", "p4d.24xlarge"),
        ("P4D.24XLARGE", "p4d.24xlarge"),
        ("aws p4d", "p4d.24xlarge"),
        ("NC24ads A100 v4", "Standard_NC24ads_A100_v4"),
        ("google a2-highgpu-1g", "a2-highgpu-1g"),
    ],
)
def test_spelling_may_vary(text: str, name: str) -> None:
    assert find_in_catalog(text).name == name


@pytest.mark.parametrize("text", ["A100", "V100", "RTX 4060 Ti", "p5", "aws a100", "M3 Max"])
def test_ambiguous_name_lists_the_candidates(text: str) -> None:
    with pytest.raises(AmbiguousName) as caught:
        find_in_catalog(text)
    assert len(caught.value.matches) > 1
    assert caught.value.matches[0] in caught.value.why


@pytest.mark.parametrize(
    ("text", "near"),
    [
        ("AWS P8", "p5"),
        ("rtx 3065", "GeForce RTX 3060 Ti"),
        ("H300", "H200"),
        ("gtx 1085", "GeForce GTX 1080"),
        ("g9.xlarge", "g6"),
    ],
)
def test_unknown_name_lists_similar_names(text: str, near: str) -> None:
    with pytest.raises(UnknownName) as caught:
        find_in_catalog(text)
    assert near in caught.value.nearest
    assert near in str(caught.value)


def test_provider_restricts_the_search_to_its_machines() -> None:
    assert isinstance(find_in_catalog("P4"), GpuSpec)
    with pytest.raises(UnknownName, match="no cloud machine"):
        find_in_catalog("aws p44")
    assert isinstance(find_cloud_machine("aws g5.xlarge"), CloudMachine)


def test_every_gpu_is_found_by_all_its_names() -> None:
    for gpu in gpu_specs():
        for name in (gpu.name, gpu.name.lower(), *gpu.aliases):
            assert find_gpu(name) == gpu


def test_no_two_gpus_share_a_name() -> None:
    owners: dict[str, str] = {}
    for gpu in gpu_specs():
        for key in {_key(name) for name in (gpu.name, *gpu.aliases)}:
            assert owners.setdefault(key, gpu.name) == gpu.name


@pytest.mark.medium
@given(st.text(max_size=20))
@settings(max_examples=40, deadline=None)
def test_any_text_gives_a_result_or_an_oomph_error(text: str) -> None:
    try:
        find_in_catalog(text)
    except (AmbiguousName, UnknownName) as error:
        assert str(error).endswith(".")


def test_machines_with_a_gpu_are_listed_smallest_first() -> None:
    machines = cloud_machines_with(find_gpu("A100-40"))
    assert [machine.gpu_count for machine in machines["gcp"]] == sorted(
        machine.gpu_count for machine in machines["gcp"]
    )
    assert machines["aws"][0].name == "p4d.24xlarge"


@pytest.mark.parametrize(
    ("text", "matches"),
    [
        (
            "rtx pro 6000",
            {"RTX PRO 6000 Blackwell Workstation", "RTX PRO 6000 Blackwell Max-Q", "RTX PRO 6000 Blackwell Server"},
        ),
        (
            "rtx pro 6000 blackwell",
            {"RTX PRO 6000 Blackwell Workstation", "RTX PRO 6000 Blackwell Max-Q", "RTX PRO 6000 Blackwell Server"},
        ),
        ("rtx pro 5000", {"RTX PRO 5000 Blackwell 48GB", "RTX PRO 5000 Blackwell 72GB"}),
        ("m2 pro", {"M2 Pro 16GB", "M2 Pro 32GB"}),
        ("apple m2", {"M2 8GB", "M2 16GB", "M2 24GB"}),
        ("a100 pcie", {"A100 PCIe 40GB", "A100 PCIe 80GB"}),
        ("A100 SXM", {"A100 SXM4 40GB", "A100 SXM4 80GB"}),
    ],
)
def test_typed_words_are_never_contradicted(text: str, matches: set[str]) -> None:
    with pytest.raises(AmbiguousName) as caught:
        find_in_catalog(text)
    assert set(caught.value.matches) == matches


@pytest.mark.parametrize("text", ["radeon 4090", "tesla 4090", "gtx 3060", "h100 sxm4", "a100 nvl"])
def test_word_of_another_product_matches_nothing(text: str) -> None:
    with pytest.raises(UnknownName):
        find_in_catalog(text)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("rtx pro 6000 server", "RTX PRO 6000 Blackwell Server"),
        ("4090 mobile", "GeForce RTX 4090 Laptop"),
        ("rtx a6000 48gb", "RTX A6000"),
        ("tesla a30", "A30"),
        ("a100 pcie 80", "A100 PCIe 80GB"),
    ],
)
def test_other_names_of_a_gpu_are_understood(text: str, name: str) -> None:
    assert find_in_catalog(text).name == name


@pytest.mark.parametrize(("text", "gpu"), [("azure a10", "A10"), ("aws l4", "L4"), ("aws t4", "T4")])
def test_provider_and_gpu_find_its_machines(text: str, gpu: str) -> None:
    with pytest.raises(AmbiguousName) as caught:
        find_in_catalog(text)
    assert {find_cloud_machine(name).gpu for name in caught.value.matches} == {gpu}


@pytest.mark.parametrize("text", ["", "24gb", "nvidia", "aws", "bananas"])
def test_dissimilar_name_gets_no_suggestions(text: str) -> None:
    with pytest.raises(UnknownName) as caught:
        find_in_catalog(text)
    assert caught.value.nearest == ()
    assert "similar" not in caught.value.why
    assert "`oomph gpus --cloud aws`" in caught.value.fix


def test_long_name_is_cut_in_the_message() -> None:
    with pytest.raises(UnknownName) as caught:
        find_in_catalog("rtx " + "9" * 5000)
    assert len(str(caught.value)) < 400
