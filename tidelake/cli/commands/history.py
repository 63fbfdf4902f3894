"""`tidelake table tag`, `branch`, `rollback` and `orphans`."""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime, timedelta
from typing import Any

from tidelake.cli.arguments import CatalogAddress
from tidelake.cli.exits import UsageError
from tidelake.cli.formatting import printable
from tidelake.cli.output import CommandOutput
from tidelake.storage.base.errors import BadInput
from tidelake.storage.model.options.values import parse_duration_ms

_PATHS_SHOWN = 20


def create_tag(
    out: CommandOutput, *, name: str, catalog: CatalogAddress, tag: str, snapshot: int | None, retain: str | None
) -> None:
    made = catalog.open().table(name).create_tag(tag, snapshot=snapshot, retain=_retention(retain))
    _print_result(out, {"tag": tag, "snapshot": made.id}, f"tag {tag} keeps snapshot {made.id} of {name}")


def replace_tag(
    out: CommandOutput, *, name: str, catalog: CatalogAddress, tag: str, snapshot: int | None, retain: str | None
) -> None:
    made = catalog.open().table(name).replace_tag(tag, snapshot=snapshot, retain=_retention(retain))
    _print_result(out, {"tag": tag, "snapshot": made.id}, f"tag {tag} now keeps snapshot {made.id} of {name}")


def rename_tag(out: CommandOutput, *, name: str, catalog: CatalogAddress, tag: str, new_name: str) -> None:
    catalog.open().table(name).rename_tag(tag, new_name)
    _print_result(out, {"tag": new_name, "was": tag}, f"tag {tag} of {name} is now called {new_name}")


def delete_tag(out: CommandOutput, *, name: str, catalog: CatalogAddress, tag: str, dry_run: bool) -> None:
    table = catalog.open().table(name)
    if dry_run:
        tags = table.tags()
        if tag not in tags:
            raise BadInput(f"{name} has no tag {tag!r}; its tags are: {', '.join(tags) or 'none'}")
        kept = table.context.snapshots.exists(tags[tag].id)
        files = "without files: the snapshot exists" if kept else "with the files that only it references"
        _print_result(
            out, {"tag": tag, "files": not kept}, f"tag {tag} of snapshot {tags[tag].id} would be deleted, {files}"
        )
        return
    files_gone = table.delete_tag(tag)
    _print_result(
        out, {"deleted": tag, "files": files_gone}, f"tag {tag} of {name} was deleted, with {files_gone:,} files"
    )


def expire_tags(
    out: CommandOutput, *, name: str, catalog: CatalogAddress, older_than: str | None, dry_run: bool
) -> None:
    before = None if older_than is None else _time("--older-than", older_than).astimezone().replace(tzinfo=None)
    names = catalog.open().table(name).expire_tags(older_than=before, dry_run=dry_run)
    shown = ", ".join(names) or "none"
    _print_result(out, {"expired": names}, f"tags of {name} that {'would be' if dry_run else 'were'} deleted: {shown}")


def create_branch(
    out: CommandOutput, *, name: str, catalog: CatalogAddress, branch: str, tag: str | None, snapshot: int | None
) -> None:
    catalog.open().table(name).create_branch(branch, tag=tag, snapshot=snapshot)
    _print_result(out, {"branch": branch}, f"created {name}$branch_{branch}")


def delete_branch(out: CommandOutput, *, name: str, catalog: CatalogAddress, branch: str, dry_run: bool) -> None:
    opened = catalog.open()
    if dry_run:
        branch_table = opened.table(f"{name}$branch_{branch}")
        snapshots, tags = len(branch_table.snapshots()), len(branch_table.tags())
        text = f"branch {branch} of {name} would be deleted, with {snapshots} snapshots and {tags} tags"
        _print_result(out, {"branch": branch, "snapshots": snapshots, "tags": tags}, text)
        return
    opened.table(name).delete_branch(branch)
    _print_result(out, {"deleted": branch}, f"branch {branch} of {name} was deleted")


def rename_branch(out: CommandOutput, *, name: str, catalog: CatalogAddress, branch: str, new_name: str) -> None:
    catalog.open().table(name).rename_branch(branch, new_name)
    _print_result(out, {"branch": new_name, "was": branch}, f"branch {branch} of {name} is now called {new_name}")


def fast_forward(out: CommandOutput, *, name: str, catalog: CatalogAddress, branch: str) -> None:
    newest = catalog.open().table(name).fast_forward(branch)
    _print_result(out, {"snapshot": newest.id}, f"{name} now equals branch {branch}: snapshot {newest.id}")


def merge_branch(out: CommandOutput, *, name: str, catalog: CatalogAddress, branch: str) -> None:
    snapshot_id = catalog.open().table(name).merge_branch(branch)
    what = (
        f"were appended: snapshot {snapshot_id} of {name}" if snapshot_id is not None else f"are already all in {name}"
    )
    _print_result(out, {"snapshot": snapshot_id}, f"the rows added on branch {branch} {what}")


def rollback(
    out: CommandOutput,
    *,
    name: str,
    catalog: CatalogAddress,
    snapshot: int | None,
    tag: str | None,
    as_of: str | None,
    watermark: int | None,
    dry_run: bool,
) -> None:
    time = None if as_of is None else _time("--as-of", as_of)
    table = catalog.open().table(name)
    removed = table.rollback(snapshot=snapshot, tag=tag, as_of=time, watermark=watermark, dry_run=dry_run)
    what = [f"{len(removed.snapshots)} snapshots"]
    what += [f"{len(removed.changelogs)} changelogs"] if removed.changelogs else []
    what += [f"tags {', '.join(removed.tags)}"] if removed.tags else []
    verb = "would be deleted" if dry_run else "were deleted"
    _print_result(
        out, {key: list(value) for key, value in asdict(removed).items()}, f"{', '.join(what)} of {name} {verb}"
    )


def orphans(out: CommandOutput, *, name: str, catalog: CatalogAddress, older_than: str, dry_run: bool) -> None:
    age_ms = _duration_ms("--older-than", older_than)
    found = catalog.open().table(name).clean_orphans(older_than_ms=age_ms, dry_run=dry_run)
    if out.is_json:
        out.document({"paths": list(found.paths), "size_bytes": found.size_bytes, "young": found.young})
        return
    for path in found.paths[:_PATHS_SHOWN]:
        out.console.print(printable(path), soft_wrap=True)
    more = len(found.paths) - _PATHS_SHOWN
    if more > 0:
        out.note(f"{more:,} more; --json lists all")
    verb = "would be deleted" if dry_run else "were deleted"
    young = f"; {found.young:,} are younger" if found.young else ""
    _print_result(out, {}, f"{len(found.paths):,} orphans of {name}, {found.size_bytes:,} bytes, {verb}{young}")


def _print_result(out: CommandOutput, document: dict[str, Any], text: str) -> None:
    if out.is_json:
        out.document(document)
    else:
        out.console.print(printable(text), soft_wrap=True)


def _retention(text: str | None) -> timedelta | None:
    return None if text is None else timedelta(milliseconds=_duration_ms("--retain", text))


def _duration_ms(option: str, text: str) -> int:
    try:
        return parse_duration_ms(text)
    except BadInput as e:
        raise UsageError(f"{option}: {e}") from None


def _time(option: str, text: str) -> datetime:
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        raise UsageError(f"{option} {text}: not a time such as 2026-05-01T12:00:00Z") from None
