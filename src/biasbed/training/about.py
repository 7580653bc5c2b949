"""Description of a training in MLflow's pages, and commands to go on with."""

from __future__ import annotations

from biasbed import limits
from biasbed.tracking.notes import RUN_ID, command, commands, joined, own_command
from biasbed.training.expected import describe_differences
from biasbed.training.job import Job


def describe_training(job: Job) -> str:
    """Return a paragraph and a list of commands, in Markdown."""
    config, suite = job.config, job.suite
    cell = f", {job.cell}" if job.cell else ""
    data = " and ".join(f"`{name}`" for name in job.training_data)
    number = len(suite.testing)
    length = f"{config.steps} steps" if config.epochs is None else f"{config.epochs:g} epochs"
    normalisation = "; ".join([job.normalisation.line, *describe_differences(config)])
    return joined(
        f"**{job.row}** on the suite **{suite.name}**{cell}, seed {config.seed}: trained on {data} for {length} "
        f"({config.backbone}, {config.image_size} px), tested on {number} set{'s' if number != 1 else ''}"
        f"{limits.clause(config.limit)}. {normalisation[:1].upper()}{normalisation[1:]}.",
        commands(
            {
                "goes on, if it was cut off": own_command(),
                "trained once more, with a verdict": command("reproduce", run=RUN_ID),
                "tested on other images": command("evaluate", model=RUN_ID, suite="<suite>", data_dir="<folder>"),
                "what its study supports": command("analyze", suite=suite.name, study=config.study),
            }
        ),
    )
