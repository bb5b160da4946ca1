"""ro-crate-metadata.json: the bundle as a Workflow Run Crate, so that repositories and other tools can read
it.

dvc.yaml is the workflow, one action is its run, and one more action stands for each stage. Nothing is added
to what the receipts say. The disclosure check of the Five Safes profile is there as an action of its own: it
is what the ledger did.
"""

from __future__ import annotations

import mimetypes
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from airlock.bundle import ATTESTATIONS, INDEX, LEDGER, README
from airlock.bundle.contents import Contents
from airlock.evidence.receipts import Receipt
from airlock.evidence.zones import Stage
from airlock.inside.digests import sha256_path, walk

PROFILES = {
    "https://w3id.org/ro/wfrun/process/0.5": "Process Run Crate",
    "https://w3id.org/ro/wfrun/workflow/0.5": "Workflow Run Crate",
    "https://w3id.org/workflowhub/workflow-ro-crate/1.0": "Workflow RO-Crate",
}
TERMS = "https://w3id.org/ro/terms/workflow-run/context"
DISCLOSURE = "https://w3id.org/shp#DisclosureCheck"
BIOSCHEMAS = "https://bioschemas.org/profiles/ComputationalWorkflow/1.0-RELEASE"
WORKFLOW, CODE, LICENSE = "dvc.yaml", "stages", "LICENSE"
TYPES = {
    ".safetensors": "application/octet-stream",
    ".parquet": "application/vnd.apache.parquet",
    ".yaml": "application/yaml",
}
TYPES |= {
    ".lock": "application/yaml",
    ".pub": "text/plain",
    ".md": "text/markdown",
    ".toml": "application/toml",
    "": "text/plain",
}


def describe(contents: Contents, facts: Mapping[str, Any]) -> dict[str, Any]:
    """The metadata document of everything below the bundle's root."""
    from rocrate.rocrate import ROCrate  # type: ignore[import-untyped]

    crate = ROCrate(version="1.1")
    crate.metadata.extra_contexts.append(TERMS)
    files = _add_files(crate, contents.root)
    _add_workflow(crate, contents, facts, files)
    owner = _add(
        crate, "#owner", "Organization", name="The owner of the records", identifier=f"ed25519:{facts['key']}"
    )
    runner = _add(crate, "#airlock", "SoftwareApplication", name="Airlock", softwareVersion=facts["airlock"])
    actions = [_add_stage(crate, receipt, files, owner) for receipt in contents.witnesses.values()]
    run = _add_run(crate, contents, files, owner)
    check = _add_check(crate, contents, files, runner, owner)
    _add_root(crate, facts, files, [run, *actions, check], owner)
    document: dict[str, Any] = crate.metadata.generate()
    document["@graph"].sort(key=lambda entity: entity["@id"])
    return document


def describe_collection(root: Path, facts: Mapping[str, Any]) -> dict[str, Any]:
    """The metadata document of several bundles in one file; each has its own inside."""
    from rocrate.rocrate import ROCrate

    crate = ROCrate(version="1.1")
    for name, path in walk(root):
        crate.add_file(
            path,
            name,
            properties={"name": name, "encodingFormat": _type(path), "contentSize": str(path.stat().st_size)},
        )
    top = crate.root_dataset
    top["name"], top["datePublished"] = f"Airlock bundles of {facts['project']}", facts["committed"]
    top["description"] = (
        "Each file in runs/ is a Workflow Run Crate. Check them with `airlock verify`, without the records."
    )
    top["license"] = "https://www.apache.org/licenses/LICENSE-2.0"
    document: dict[str, Any] = crate.metadata.generate()
    document["@graph"].sort(key=lambda entity: entity["@id"])
    return document


def _add(crate: Any, entity: str, kind: str | list[str], **properties: Any) -> Any:
    from rocrate.model.contextentity import ContextEntity  # type: ignore[import-untyped]

    return crate.add(ContextEntity(crate, entity, properties={"@type": kind, **properties}))


def _add_files(crate: Any, root: Path) -> dict[str, Any]:
    """Every file but code, which is one folder; bundle.json is
    made after this and is named without a hash.
    """
    found = {}
    for name, path in walk(root):
        if not name.startswith(CODE + "/"):
            properties = {
                "encodingFormat": _type(path),
                "contentSize": str(path.stat().st_size),
                "sha256": sha256_path(path),
                "name": name,
            }
            kind = (
                {"@type": ["File", "SoftwareSourceCode", "ComputationalWorkflow"]} if name == WORKFLOW else {}
            )
            found[name] = crate.add_file(path, name, properties=properties | kind)
    code = {
        "name": "Source code of the stages and of the wall",
        "description": f"tree SHA-256 {sha256_path(root / CODE)}",
    }
    found[CODE] = crate.add_dataset(root / CODE, CODE + "/", properties=code)
    index = {
        "name": INDEX,
        "encodingFormat": "application/json",
        "description": "Format, commit and hash of every file, signed.",
    }
    found[INDEX] = crate.add_file(root / INDEX, INDEX, properties=index)
    return found


def _type(path: Path) -> str:
    return TYPES.get(path.suffix) or mimetypes.guess_type(path.name)[0] or "application/octet-stream"


def _add_workflow(crate: Any, contents: Contents, facts: Mapping[str, Any], files: Mapping[str, Any]) -> None:
    language = _add(
        crate,
        "#dvc",
        "ComputerLanguage",
        name="DVC pipeline",
        alternateName="dvc.yaml",
        url="https://dvc.org/",
    )
    workflow = files[WORKFLOW]
    workflow["programmingLanguage"] = language
    workflow["name"], workflow["version"] = "Airlock pipeline", facts["commit"]
    workflow["conformsTo"] = {"@id": BIOSCHEMAS}
    workflow["hasPart"] = [
        _add(crate, f"#tool-{stage.name}", "SoftwareApplication", **_tool(stage, facts))
        for stage in contents.graph
    ]
    crate.root_dataset["mainEntity"] = workflow


def _tool(stage: Stage, facts: Mapping[str, Any]) -> dict[str, Any]:
    words = f"{stage.description} Zone: {stage.zone}."
    return {"name": f"airlock run {stage.name}", "description": words, "softwareVersion": facts["airlock"]}


def _below(paths: Iterable[str], files: Mapping[str, Any]) -> Any:
    """All files at or below `paths`; a single one stands by itself, as the specification wants it."""
    found = [
        files[name] for path in sorted(paths) for name in files if name == path or name.startswith(path + "/")
    ]
    return found[0] if len(found) == 1 else found


def _add_stage(crate: Any, receipt: Receipt, files: Mapping[str, Any], owner: Any) -> Any:
    body = receipt.body
    layers = ", ".join(body["enforcement"]["layers"]) or "none"
    return _add(
        crate,
        f"#run-{receipt.stage}",
        "CreateAction",
        name=f"Run of stage {receipt.stage}",
        description=f"Confined to its declared inputs. Layers in force: {layers}. Records read: "
        f"{body['did_read']['records']}.",
        instrument=crate.get(f"#tool-{receipt.stage}"),
        agent=owner,
        endTime=str(body["when"]).replace("Z", ":00+00:00"),
        actionStatus="http://schema.org/CompletedActionStatus",
        object=_below(body["deps"], files),
        result=_below(body["outs"], files),
        subjectOf=_below([receipt.path, f"{ATTESTATIONS}/{receipt.stage}.dsse.json"], files),
    )


def _add_run(crate: Any, contents: Contents, files: Mapping[str, Any], owner: Any) -> Any:
    bodies = [receipt.body for receipt in contents.witnesses.values()]
    times = sorted(str(body["when"]).replace("Z", ":00+00:00") for body in bodies)
    outs = {out for body in bodies for out in body["outs"]}
    sources = {dep for body in bodies for dep in body["deps"]} - outs
    return _add(
        crate,
        "#run",
        "CreateAction",
        name="Run of the pipeline",
        description="All stages of dvc.yaml that were run, by `dvc repro`; those whose inputs had not "
        "changed are of an earlier run.",
        instrument=files[WORKFLOW],
        agent=owner,
        startTime=times[0],
        endTime=times[-1],
        actionStatus="http://schema.org/CompletedActionStatus",
        object=_below({"params.yaml", *sources}, files),
        result=_below(outs, files),
    )


def _add_check(crate: Any, contents: Contents, files: Mapping[str, Any], runner: Any, owner: Any) -> Any:
    return _add(
        crate,
        "#disclosure",
        "AssessAction",
        additionalType={"@id": DISCLOSURE},
        name="Disclosure check: each release was priced, charged and noised before any record was read",
        instrument=runner,
        agent=owner,
        actionStatus="http://schema.org/CompletedActionStatus",
        object=_below(contents.releases, files),
        result=_below([LEDGER], files),
    )


def _add_root(
    crate: Any, facts: Mapping[str, Any], files: Mapping[str, Any], actions: list[Any], owner: Any
) -> None:
    root = crate.root_dataset
    root["name"] = f"Airlock bundle of {facts['project']}, commit {str(facts['commit'])[:12]}"
    root["description"] = (
        "A pipeline that trained on sensitive records through "
        "differentially private releases, with signed receipts. "
        "Check it with `airlock verify`, without the records."
    )
    root["datePublished"] = facts["committed"]
    root["license"] = files.get(LICENSE, "https://www.apache.org/licenses/LICENSE-2.0")
    root["conformsTo"] = [
        _add(crate, uri, "CreativeWork", name=name, version=uri.rsplit("/", 1)[1])
        for uri, name in PROFILES.items()
    ]
    root["mentions"], root["author"], root["publisher"] = actions, owner, owner
    files[README]["about"] = root
    crate.metadata["conformsTo"] = [{"@id": "https://w3id.org/ro/crate/1.1"}, {"@id": list(PROFILES)[-1]}]
