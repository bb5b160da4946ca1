"""`airlock export`: a model for other programs."""

from __future__ import annotations

from pathlib import Path

import typer


def command(
    model: Path = typer.Argument(Path("data/model"), help="Folder of a trained model."),
    output: Path = typer.Option(..., "--output", "-o", help="A new folder for what is written."),
    onnx: bool = typer.Option(False, "--onnx", help="model.onnx: columns in, probabilities out."),
    torch: bool = typer.Option(
        False, "--torch", help="model.py with its tensors: needs torch and safetensors only, no pickle."
    ),
    sklearn: bool = typer.Option(
        False, "--sklearn", help="A folder for airlock.Model, a scikit-learn classifier; takes every model."
    ),
) -> None:
    """Write a model in a form that other programs read, with a model card beside it.

    Example: airlock export data/model --onnx --output clinic-model
    """
    import shutil
    import tempfile

    from airlock.errors import InputError
    from airlock.export.card import card_of, markdown
    from airlock.storage import load_model, save_model, write_json, write_text

    if not (onnx or torch or sklearn):
        raise InputError("say in which form: --onnx, --torch or --sklearn, or several of them")
    if output.exists():
        raise InputError(f"{output} exists already: give a new folder")
    loaded = load_model(model)
    workspace = Path.cwd() if model.resolve() == (Path.cwd() / "data/model").resolve() else None
    output.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=output.parent, prefix=f".{output.name}-") as made:
        folder = Path(made) / "export"
        folder.mkdir()
        if onnx:
            from airlock.export.onnx import write_onnx

            write_onnx(loaded, folder / "model.onnx", notes={"release": str(loaded.document.get("release"))})
        if torch:
            from airlock.export.torch_form import write_torch

            write_torch(loaded, folder / "torch")
        if sklearn:
            save_model(loaded, folder / "sklearn")
        card = card_of(loaded, workspace)
        write_json(folder / "card.json", card)
        write_text(folder / "README.md", markdown(card))
        shutil.move(folder, output)
    typer.echo(f"{output}: {', '.join(sorted(path.name for path in output.iterdir()))}")
