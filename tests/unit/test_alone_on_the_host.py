"""The input alone and the network alone, measured without a campaign: what is asked, and what is recorded."""

import contextlib
import random

import campaign_builders
import pytest

from tare.core.errors import UnavailableError, UserError
from tare.core.files import project_root, read_json
from tare.experiments import network, pipeline
from tare.model.journals.units import AS_FOUND
from tare.model.records.launches import LaunchRecord
from tare.model.records.measured import NetworkRecord
from tare.model.registry import HOST
from tare.model.schema import parse, read
from tare.model.studies.loading import load_part
from tare.model.studies.study import NetworkPart, PipelinePart

STUDY = str(project_root() / "config/nthu2018.yaml")


@pytest.fixture
def asked(monkeypatch):
    """What launches are asked for; `parts` has what is changed of the study, `lacking` who is unavailable."""
    record = parse(LaunchRecord, campaign_builders.launch_record("host", random.Random(1)), "a launch")

    class Asked:
        parts, lacking, launches = {}, {}, []

    @contextlib.contextmanager
    def sites(study, workload, names, folder, record):
        there = {name: f"site of {name}" for name in names if name not in Asked.lacking}
        yield there, {name: Asked.lacking[name] for name in names if name in Asked.lacking}, {"images": list(there)}

    def launched(site, spec, conditions, **more):
        Asked.launches.append((site, spec, conditions, more))
        return record

    for module, name in ((pipeline, "launch"), (network, "launch_group")):
        monkeypatch.setattr(module, name, launched)
        monkeypatch.setattr(module, "sites", sites)
        monkeypatch.setattr(module, "measuring", lambda out: contextlib.nullcontext())
        monkeypatch.setattr(module, "settled", lambda study: study)
        monkeypatch.setattr(module, "load_part", lambda kind, source: Asked.parts[kind])
    Asked.launches, Asked.lacking = [], {}
    monkeypatch.setattr(network.scenarios, "barred", lambda name, sites, kind: {})
    for kind in (PipelinePart, NetworkPart):
        Asked.parts[kind] = load_part(kind, STUDY).replace(device="cpu")
    return Asked


def test_the_input_is_measured_with_as_many_samples_as_a_pass_or_a_batch_takes(asked, tmp_path, capsys):
    study, name, batch = asked.parts[PipelinePart], "inception3", 24
    study = study.replace(workloads={name: study.workloads[name].replace(batch=batch)})
    for images, samples in ((30, 30), (16, 24)):
        wanted = study.pipeline.replace(images=images)
        asked.parts[PipelinePart] = study.replace(pipeline=wanted)
        pipeline.measure_pipeline(STUDY, name, None, None, tmp_path / "out.json")
        assert capsys.readouterr().out.strip().endswith(" ok"), "there is no reason to tell"
        site, spec, conditions, _ = asked.launches.pop()
        assert site == f"site of {HOST}" and conditions.page_cache == AS_FOUND and spec.mode == "pipeline"
        assert (spec.workers, spec.images, spec.repetitions) == (wanted.workers, images, wanted.repetitions)
        assert (spec.warmup_steps, spec.steps) == (wanted.warmup_steps, wanted.steps)
        assert spec.options["samples"] == samples
    record = read_json(tmp_path / "out.json")
    assert (record["schema"], record["study"], record["workload"]) == (pipeline.SCHEMA, study.study, name)
    assert record["settings"]["images"] == 16 and record["provenance"] == {"images": [HOST]}
    assert (record["status"], record["batch"], record["device"]) == ("ok", batch, "cpu")


def test_the_input_alone_needs_a_host_and_a_study_that_asks(asked, tmp_path):
    asked.lacking[HOST] = "no such files"
    with pytest.raises(UnavailableError, match="no such files"):
        pipeline.measure_pipeline(STUDY, "inception3", None, None, tmp_path / "out.json")
    asked.parts[PipelinePart] = asked.parts[PipelinePart].replace(pipeline=None)
    with pytest.raises(UnavailableError, match="asks for no pipeline"):
        pipeline.measure_pipeline(STUDY, "inception3", None, None, tmp_path / "out.json")
    assert not asked.launches and not (tmp_path / "out.json").exists()


@pytest.mark.parametrize(
    ("rate", "bits", "stream"), [(1000.0, 1e9, 62_500_000), (1.0, 1e6, 1 << 20), (None, None, 1 << 28)]
)
def test_a_stream_takes_half_a_second_of_the_rate_that_is_set(asked, tmp_path, rate, bits, stream):
    study = asked.parts[NetworkPart]
    wanted = study.distributed.replace(rate_mbit_per_s=rate, delay_ms=0.25, sizes_kib=(1, 256))
    asked.parts[NetworkPart] = study.replace(distributed=wanted)
    network.measure_network(STUDY, None, tmp_path / "out.json")
    site, spec, conditions, more = asked.launches[0]
    assert (site, spec.mode, conditions.page_cache) == (f"site of {HOST}", "network", AS_FOUND)
    assert (spec.stream_bytes, spec.sizes_bytes, spec.repetitions) == (stream, (1024, 262144), wanted.repetitions)
    assert more["size"] == wanted.workers
    assert (more["network"].rate_bit_per_s, more["network"].delay_ms) == (bits, 0.25)
    assert not more["network"].overlay


def test_the_network_of_nodes_is_measured_between_them_without_a_rate(asked, tmp_path):
    study = asked.parts[NetworkPart]
    wanted = study.distributed.replace(network="slurm", rate_mbit_per_s=1000.0)
    asked.parts[NetworkPart] = study.replace(distributed=wanted)
    network.measure_network(STUDY, None, tmp_path / "out.json")
    _, spec, _, more = asked.launches[0]
    assert more["network"] == "slurm" and spec.stream_bytes == network.FREE_STREAM_BYTES
    found = read(NetworkRecord, tmp_path / "out.json").group
    assert (found["network"], found["rate_mbit_per_s"]) == ("slurm", None)


def test_the_record_of_a_network_has_each_environment_or_its_reason(asked, tmp_path, monkeypatch):
    asked.lacking["docker"] = "no daemon answers"
    names = ["host", "docker", "podman"]
    study = asked.parts[NetworkPart]
    asked.parts[NetworkPart] = study.replace(distributed=study.distributed.replace(environments=tuple(names)))
    monkeypatch.setattr(network.scenarios, "barred", lambda name, sites, kind: {"podman": "it enters no network"})
    network.measure_network(STUDY, None, tmp_path / "out.json")
    found = read(NetworkRecord, tmp_path / "out.json")
    assert list(found.launches) == ["host"]
    assert found.unavailable == {"docker": "no daemon answers", "podman": "it enters no network"}
    wanted = study.distributed
    assert found.group == {
        **{"workers": wanted.workers, "rate_mbit_per_s": wanted.rate_mbit_per_s, "delay_ms": wanted.delay_ms},
        "network": network.SWITCH,
    }
    asked.parts[NetworkPart] = study.replace(distributed=None)
    with pytest.raises(UserError, match="trains no instances together"):
        network.measure_network(STUDY, None, tmp_path / "none.json")
