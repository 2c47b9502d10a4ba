"""Environments as `tare weigh --env` takes them."""

import pytest

from tare.core.errors import UserError
from tare.model.choices import option_values, read_choice, read_choices, without_options


@pytest.mark.parametrize(
    ("text", "name", "runtime", "image", "options"),
    [
        ("host", "host", "host", None, ()),
        ("docker=a/b@sha256:00", "docker", "docker", "a/b@sha256:00", ()),
        ("apptainer=docker://python:3", "apptainer", "apptainer", "docker://python:3", ()),
        ("singularity=job.sif", "apptainer", "apptainer", "job.sif", ()),
        ("a=docker=IMG --cpus 2", "a", "docker", "IMG", ("--cpus", "2")),
        ("docker=IMG: --cpus 2", "docker", "docker", "IMG", ("--cpus", "2")),
        ("b=host: taskset -c 0", "b", "host", None, ("taskset", "-c", "0")),
        ("c=conda='/opt/my env'", "c", "conda", "/opt/my env", ()),
    ],
)
def test_what_is_named(text, name, runtime, image, options):
    found = read_choice(text)
    assert (found.name, found.runtime, found.image, found.options) == (name, runtime, image, options)
    assert read_choice(found.text) == found


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("dokcer=x", "did you mean 'docker'"),
        ("a=b", "'b' is no runtime"),
        ("docker", "docker needs a tag or a digest"),
        ("x=docker=I --name b", "--name of docker: Tare names its containers"),
        ("apptainer=a.sif --pwd /x", "give --workdir"),
        ("docker='a b", "no closing quotation"),
        ("A=host", "must begin with a small letter"),
        ("1=host", "must begin with a small letter"),
    ],
)
def test_what_is_wrong_is_one_line(text, says):
    with pytest.raises(UserError, match=r"^--env ") as told:
        read_choice(text)
    assert says in str(told.value) and "\n" not in str(told.value)


def test_two_of_one_name_need_names(tmp_path):
    with pytest.raises(UserError, match="two environments are called docker"):
        read_choices(["docker=a", "docker=b"], None)
    with pytest.raises(UserError, match="name what is compared"):
        read_choices([], None)
    file = tmp_path / "envs.yaml"
    file.write_text("environments:\n- {name: old, runtime: docker, image: a, variables: {OMP_NUM_THREADS: '2'}}\n")
    found = read_choices(["host"], file)
    assert [one.name for one in found] == ["host", "old"] and found[1].variables == {"OMP_NUM_THREADS": "2"}
    file.write_text("environments:\n- {name: old, runtime: docker, imgae: a}\n")
    with pytest.raises(UserError, match="imgae"):
        read_choices(["host"], file)


def test_options_are_found_and_left_out_in_both_forms():
    options = ("--cpus", "2", "--memory=1g", "--gpus", "all")
    assert option_values(options, "--cpus", "--memory") == ["2", "1g"]
    assert without_options(options, "--cpus", "--memory") == ("--gpus", "all")
