"""Which changes of the source columns are applied, ignored, or stop the pipeline."""

from __future__ import annotations

from typing import Final

import pytest

from tidelake.ingest.evolution.behavior import Action, ChangeKind, SchemaBehavior
from tidelake.ingest.settings import Config, SchemaChangeName, SchemaEvolutionSettings, TableSettings
from tidelake.ingest.source_settings import FolderSettings

ADD, ALTER, RENAME, DROP = ChangeKind
ALL: Final[tuple[SchemaChangeName, ...]] = ("add", "alter", "rename", "drop")


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        pytest.param(
            SchemaEvolutionSettings(),
            {ADD: Action.APPLY, ALTER: Action.APPLY, RENAME: Action.IGNORE, DROP: Action.IGNORE},
            id="by default columns are added and widened",
        ),
        pytest.param(
            SchemaEvolutionSettings(mode="exception", include=ALL),
            dict.fromkeys(ChangeKind, Action.STOP),
            id="exception stops, whatever is included",
        ),
        pytest.param(
            SchemaEvolutionSettings(mode="evolve", include=ALL), dict.fromkeys(ChangeKind, Action.APPLY), id="evolve"
        ),
        pytest.param(
            SchemaEvolutionSettings(mode="try_evolve", include=("column",)),
            dict.fromkeys(ChangeKind, Action.TRY),
            id="try_evolve, and a word for all columns",
        ),
        pytest.param(
            SchemaEvolutionSettings(mode="lenient", include=ALL),
            {ADD: Action.APPLY, ALTER: Action.APPLY, RENAME: Action.IGNORE, DROP: Action.IGNORE},
            id="lenient loses no column",
        ),
        pytest.param(
            SchemaEvolutionSettings(mode="ignore", include=ALL), dict.fromkeys(ChangeKind, Action.IGNORE), id="ignore"
        ),
        pytest.param(
            SchemaEvolutionSettings(include=ALL, exclude=("drop", "alter.column.type")),
            {ADD: Action.APPLY, ALTER: Action.IGNORE, RENAME: Action.APPLY, DROP: Action.IGNORE},
            id="what is excluded is ignored",
        ),
    ],
)
def test_mode_include_and_exclude_decide_about_a_change(
    settings: SchemaEvolutionSettings, expected: dict[ChangeKind, Action]
) -> None:
    assert {kind: SchemaBehavior(settings).action(kind) for kind in ChangeKind} == expected


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        (SchemaEvolutionSettings(), "evolve: add.column, alter.column.type"),
        (SchemaEvolutionSettings(mode="ignore"), "ignore: no change is made"),
        (SchemaEvolutionSettings(mode="exception"), "exception: stops at the first change"),
    ],
)
def test_plan_prints_the_behavior_in_one_line(settings: SchemaEvolutionSettings, text: str) -> None:
    assert str(SchemaBehavior(settings)) == text


def test_a_table_setting_overrides_the_pipeline_setting(tmp_path: object) -> None:
    own = SchemaEvolutionSettings(mode="ignore")
    tables = [TableSettings(name="shop.a"), TableSettings(name="shop.b", schema_evolution=own)]
    of_pipeline = SchemaEvolutionSettings(mode="lenient")
    source = FolderSettings(path=tmp_path)  # type: ignore[arg-type]
    config = Config(pipeline="p", warehouse="w", source=source, tables=tables, schema_evolution=of_pipeline)
    assert [config.schema_evolution_of(table) for table in tables] == [of_pipeline, own]
