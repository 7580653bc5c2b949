"""Names and addresses that a tracking server is asked with: any name finds its runs, no message has a password."""

from __future__ import annotations

from pathlib import Path

import pytest

from biasbed import cli, record
from biasbed.errors import Failure, UsageError
from biasbed.system import places
from biasbed.tracking.run_reader import find_runs
from biasbed.tracking.server import database, guarded, resolve_uri, sqlite_uri
from helpers.children import Command

STUDIES = (
    *("bob's", 'say "hi"', "both ' and \"", "it's\\", "a''b", "tags.x = 'y' or 'z", "100%", "_ob_s", "BOB'S", "bob_s"),
    *("x' and tags.`biasbed.kind` = 'train", "back\\slash", "ünï's", "`tick`", "line\nbreak's"),
)


def test_any_name_of_a_study_finds_its_runs_and_no_others(tracking: str) -> None:
    from mlflow import MlflowClient

    client = MlflowClient(tracking)
    made = {
        study: client.create_run("0", tags={record.STUDY: study, record.KIND: "train"}).info.run_id for study in STUDIES
    }
    for study, run_id in made.items():
        assert [run.info.run_id for run in find_runs(tracking, study=study, kind="train")] == [run_id], study
    assert find_runs(tracking, study="bob'") == []


def test_commands_take_a_study_with_an_apostrophe(tracking: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["benchmark", "--dry_run", "yes", "--algorithms", "erm", "--seeds", "0", "--device", "cpu"]
    assert cli.main([*words, "--study", "bob's"]) == 0, capsys.readouterr().err
    assert cli.main(["export", "--file", "x.zip", "--study", "bob's"]) == 2
    assert "belongs to such a study" in capsys.readouterr().err


SECRET = "s3cr3t"
ODD = (
    f"http://alice:{SECRET}@host:5000",
    f"http://alice:pa/{SECRET}@host:5000/path",
    f"http://alice:p@{SECRET}@host:5000",
    f"http://alice:pa {SECRET}@host:5000",
    f"http://alice:pa?{SECRET}@host",
    f"http://alice:pa#{SECRET}@host",
    f"http:///alice:{SECRET}@host",
    f"http:/alice:{SECRET}@host",
    f"alice:{SECRET}@host:5000",
    f"alice:pa/{SECRET}@host:5000/db",
    f"postgresql://host/db?user=alice&password={SECRET}",
    f"postgresql://host/db?user=a@b&password={SECRET}&x=1",
    f"postgresql://host/db?sslpassword=a&b{SECRET}",
    f"http://host:5000/?token={SECRET}",
    f"http://host:5000/?api_key={SECRET}#x",
    f"http://host:5000/?a=b;ACCESS_TOKEN={SECRET}",
    f"host=db user=alice password={SECRET}",
    f"foo://alice:{SECRET}@host",
    f"postgresql+psycopg2://alice:pa//{SECRET}@host/db",
    f"mssql+pyodbc:///?odbc_connect=DRIVER%3D;UID=a;PWD={SECRET}",
)


def refusal(uri: str) -> str:
    """Return the message about an address that can't be used; "" for another."""
    try:
        resolve_uri(uri)
    except UsageError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("uri", ODD)
def test_no_message_has_a_password(uri: str) -> None:
    """For addresses that are refused, and those that an error of MLflow quotes."""
    assert SECRET not in places.public_uri(uri)
    assert SECRET not in str(places.home(uri))
    assert SECRET not in refusal(uri)
    with pytest.raises(Failure) as caught, guarded(uri):
        raise OSError(f"request to {uri}/api?x=1 failed for '{uri}': {uri}")
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize(
    "uri",
    [
        *("http://host:5000", "https://host/path?x=1", "sqlite:////home/a@b/mlflow.db", "databricks://profile"),
        *("sqlite:////home/pass=1/x:y@z.db", "s3://bucket/key"),
    ],
)
def test_an_address_without_secrets_is_shown_as_it_is(uri: str) -> None:
    assert places.public_uri(uri) == uri
    assert places.public_text(f"can't reach {uri} now: mail admin@host") == f"can't reach {uri} now: mail admin@host"


# --- files of local databases -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["plain", "a%20b", "a b", "100%", "q?r#s", "ö", "a%2520b", "a'b"])
def test_a_path_and_its_address_are_inverse(name: str, tmp_path: Path) -> None:
    from sqlalchemy import make_url

    file = tmp_path / name / "x.db"
    assert database(sqlite_uri(file)) == file
    assert make_url(sqlite_uri(file)).database == str(file)


@pytest.mark.parametrize("name", ["a%20b", *(pytest.param(name, marks=pytest.mark.slow) for name in ("a b", "100%"))])
def test_everything_stays_in_the_folder_that_was_typed(
    name: str, biasbed: Command, train_flags: list[str], tmp_path: Path
) -> None:
    for folder in {name, "a b"}:
        (tmp_path / folder).mkdir()
    uri = f"sqlite:///{tmp_path / name}/x.db"
    done = biasbed("train", *train_flags, "--epochs", "1", env={"MLFLOW_TRACKING_URI": uri})
    assert "done: " in done.stderr
    assert (tmp_path / name / "x.db").exists()
    assert list((tmp_path / name / "mlruns").rglob("protocol.json"))
    if name != "a b":
        assert not list((tmp_path / "a b").iterdir())


def test_an_address_that_mlflow_made_means_what_it_means_there(tmp_path: Path) -> None:
    """MLflow writes `a%20b` for its own database in the folder `a b`."""
    (tmp_path / "a b").mkdir()
    assert database(resolve_uri(f"sqlite:///{tmp_path}/a%20b/mlflow.db")) == tmp_path / "a b" / "mlflow.db"
