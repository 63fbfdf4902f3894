"""The OpenLineage events of one run of a pipeline, as the client's models.

Job: the pipeline. Run: one process that reads. Inputs: topics. Outputs: tables. Counts are those of the run so far, so
each event replaces the one before it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import metadata
from typing import Any, Final

import attr
from openlineage.client import event_v2
from openlineage.client.facet_v2 import (
    column_lineage_dataset,
    dataset_type_dataset,
    dataset_version_dataset,
    datasource_dataset,
    error_message_run,
    input_statistics_input_dataset,
    job_type_job,
    output_statistics_output_dataset,
    processing_engine_run,
    schema_dataset,
    storage_dataset,
    symlinks_dataset,
)
from openlineage.client.generated.base import RunFacet

from tidelake.ingest.openlineage.column_origins import column_origins, filter_columns
from tidelake.ingest.openlineage.dataset_names import (
    DatasetName,
    file_name,
    input_name,
    source_namespace,
    table_name,
    without_credentials,
)
from tidelake.ingest.openlineage.run_snapshot import PARTITIONS_MAX, RunSnapshot, TableState
from tidelake.ingest.settings import Config
from tidelake.ingest.source_settings import KafkaSettings
from tidelake.storage.model.types import DataField, RowType

ENGINE: Final = "tidelake"
_ERROR_CHARACTERS_MAX: Final = 10_000
_REPOSITORY: Final = next(
    url.partition(", ")[2] for url in metadata(ENGINE).get_all("Project-URL") or () if url.startswith("Source,")
)
_FACETS: Final = f"{_REPOSITORY}/blob/main/docs/lineage-facets.json#/$defs"


@attr.define
class TidelakePositionsRunFacet(RunFacet):  # type: ignore[misc]  # the client is optional, so mypy skips it
    """How far the topics are read and committed. See docs/lineage-facets.json.

    partitions: topic, partition, committed offset, and the end of its log; empty if there are too many.
    partitionCount: their number.
    """

    partitions: list[dict[str, Any]]
    partitionCount: int  # noqa: N815 - a member of the facet
    checkpoints: int

    @staticmethod
    def _get_schema() -> str:
        return f"{_FACETS}/TidelakePositionsRunFacet"


@dataclass(frozen=True, slots=True)
class RunEvents:
    """Makes the events of one run.

    namespace, name: of the job.
    """

    config: Config
    namespace: str
    name: str
    run_id: str

    def event(
        self, state: event_v2.RunState, at_ms: int, snapshot: RunSnapshot, error: str | None = None
    ) -> event_v2.RunEvent:
        """Return an event.

        at_ms: its time (epoch).
        error: why the run failed, for FAIL.
        """
        facets: dict[str, RunFacet] = {
            "processing_engine": processing_engine_run.ProcessingEngineRunFacet(
                version=metadata(ENGINE)["Version"], name=ENGINE, openlineageAdapterVersion=metadata(ENGINE)["Version"]
            ),
            "tidelake_positions": _positions(snapshot),
        }
        if error is not None:
            facets["errorMessage"] = error_message_run.ErrorMessageRunFacet(error[:_ERROR_CHARACTERS_MAX], "PYTHON")
        return event_v2.RunEvent(
            eventType=state,
            eventTime=_time(at_ms),
            run=event_v2.Run(self.run_id, facets),
            job=self._job(),
            producer=_REPOSITORY,
            inputs=[*self._inputs(snapshot).values()],
            outputs=[self._output(name, table) for name, table in snapshot.tables.items()],
        )

    def _job(self) -> event_v2.Job:
        is_batch = self.config.source.until == "end"
        kind = job_type_job.JobTypeJobFacet("BATCH" if is_batch else "STREAMING", ENGINE.upper(), "PIPELINE")
        return event_v2.Job(self.namespace, self.name, {"jobType": kind})

    def _inputs(self, snapshot: RunSnapshot) -> Mapping[DatasetName, event_v2.InputDataset]:
        source = self.config.source
        counts: dict[DatasetName, tuple[int, int]] = {}
        configured: list[str] = []
        if isinstance(source, KafkaSettings):
            configured = [source.topics] if isinstance(source.topics, str) else list(source.topics)
        elif not snapshot.topics:
            configured = [""]  # the folder, whatever its topics are
        for topic in {**dict.fromkeys(configured), **snapshot.topics}:
            name, (records, nbytes) = input_name(source, topic), snapshot.topics.get(topic, (0, 0))
            before = counts.get(name, (0, 0))
            counts[name] = before[0] + records, before[1] + nbytes
        place = source_namespace(source)
        kind = "TOPIC" if isinstance(source, KafkaSettings) else "FILE"
        return {
            name: event_v2.InputDataset(
                name.namespace,
                name.name,
                facets={
                    "dataSource": datasource_dataset.DatasourceDatasetFacet(place, place),
                    "datasetType": dataset_type_dataset.DatasetTypeDatasetFacet(kind),
                },
                inputFacets={
                    "inputStatistics": input_statistics_input_dataset.InputStatisticsInputDatasetFacet(records, nbytes)
                },
            )
            for name, (records, nbytes) in counts.items()
        }

    def _output(self, name: str, table: TableState) -> event_v2.OutputDataset:
        of, context = table_name(self.config, name), table.context
        files, location = file_name(context.location), without_credentials(context.location)
        facets: dict[str, Any] = {
            "schema": schema_dataset.SchemaDatasetFacet([_field(f) for f in context.schema.fields]),
            "columnLineage": self._columns(table),
            "dataSource": datasource_dataset.DatasourceDatasetFacet(of.namespace, location),
            "datasetType": dataset_type_dataset.DatasetTypeDatasetFacet("TABLE"),
            "storage": storage_dataset.StorageDatasetFacet("paimon", context.options.file_format()),
            "symlinks": symlinks_dataset.SymlinksDatasetFacet(
                [symlinks_dataset.Identifier(files.namespace, files.name, "LOCATION")]
            ),
        }
        if table.snapshot_id is not None:
            facets["version"] = dataset_version_dataset.DatasetVersionDatasetFacet(str(table.snapshot_id))
        written = output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet(rowCount=table.rows)
        return event_v2.OutputDataset(of.namespace, of.name, facets=facets, outputFacets={"outputStatistics": written})

    def _columns(self, table: TableState) -> column_lineage_dataset.ColumnLineageDatasetFacet:
        inputs = sorted({input_name(self.config.source, topic) for topic in table.topics}, key=lambda one: one.name)

        def input_fields(
            column: str, transformation: column_lineage_dataset.Transformation
        ) -> list[column_lineage_dataset.InputField]:
            return [
                column_lineage_dataset.InputField(one.namespace, one.name, column, [transformation]) for one in inputs
            ]

        fields = {}
        for origin in column_origins(table) if inputs else ():
            kind = "TRANSFORMATION" if origin.made_by else "IDENTITY"
            how = column_lineage_dataset.Transformation("DIRECT", kind, origin.made_by, origin.is_masked)
            fields[origin.column] = column_lineage_dataset.Fields(input_fields(origin.source, how))
        filtering = column_lineage_dataset.Transformation("INDIRECT", "FILTER", "", masking=False)
        rows = [one for column in filter_columns(table) for one in input_fields(column, filtering)]
        return column_lineage_dataset.ColumnLineageDatasetFacet(fields, rows)


def _positions(snapshot: RunSnapshot) -> TidelakePositionsRunFacet:
    shown = snapshot.partitions if len(snapshot.partitions) <= PARTITIONS_MAX else {}
    partitions = [
        {"topic": p.topic, "partition": p.partition, "committed": at.committed}
        | ({} if at.end is None else {"end": at.end})
        for p, at in shown.items()
    ]
    return TidelakePositionsRunFacet(partitions, len(snapshot.partitions), snapshot.checkpoints)


def _field(of: DataField) -> schema_dataset.SchemaDatasetFacetFields:
    inner = [_field(one) for one in of.type.fields] if isinstance(of.type, RowType) else []
    return schema_dataset.SchemaDatasetFacetFields(of.name, str(of.type), of.description, fields=inner)


def _time(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="milliseconds")
