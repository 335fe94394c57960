"""Programs that make one tree equal to another, and runs that only say what they would do."""

from typing import Final

from ringfence.dataclass import dataclass
from ringfence.shell.catalog.base import names as _set

RSYNC_TAKES: Final = _set(
    "-e --rsh --exclude --include --filter -f --exclude-from --include-from --files-from --port --bwlimit --timeout"
    " --contimeout --backup-dir --suffix --partial-dir --temp-dir -T --compare-dest --copy-dest --link-dest"
    " --rsync-path --password-file --out-format --log-file-format --max-size --min-size --max-alloc --chmod --chown"
    " --max-delete -B --block-size -M --remote-option --info --debug --stderr --modify-window -@ --usermap --groupmap"
    " --sockopts --address --skip-compress --compress-level --compress-choice --zc --zl --checksum-choice --cc"
    " --checksum-seed --iconv --stop-after --stop-at --time-limit --protocol --outbuf --copy-as --early-input"
)
_RCLONE_TAKES: Final = _set(
    "--config --transfers --checkers --exclude --include --filter -f --bwlimit --log-file --log-level --max-age"
    " --min-age --max-size --min-size --max-depth --max-delete --retries --stats --backup-dir --suffix --exclude-from"
    " --include-from --filter-from --files-from --compare-dest --copy-dest --timeout --tpslimit --buffer-size"
)
_AWS_TAKES: Final = _set(
    "--profile --region --exclude --include --endpoint-url --acl --storage-class --output --query --cache-control"
    " --content-type --sse --metadata --page-size"
)


@dataclass(frozen=True, slots=True)
class Mirror:
    """What the target has and the source has not is removed."""

    words: tuple[str, ...] = ()
    """The sub-command."""
    deletes: frozenset[str] = frozenset()
    """Only with one of these; none: always."""
    takes: frozenset[str] = frozenset()
    moves: frozenset[str] = frozenset()
    """With one of these the source is removed."""
    every: bool = False
    """There is no source: every operand is removed."""


MIRRORS: Final[dict[str, tuple[Mirror, ...]]] = {
    "rsync": (
        Mirror(
            deletes=_set("--del --delete --delete-before --delete-during --delete-delay --delete-after")
            | _set("--delete-excluded --delete-missing-args"),
            takes=RSYNC_TAKES,
            moves=_set("--remove-source-files --remove-sent-files"),
        ),
    ),
    "rclone": (
        Mirror(("sync",), takes=_RCLONE_TAKES),
        *(Mirror((word,), takes=_RCLONE_TAKES, every=True) for word in ("purge", "delete", "deletefile", "rmdirs")),
    ),
    "aws": (Mirror(("s3", "sync"), _set("--delete"), _AWS_TAKES),),
    "gsutil": (Mirror(("rsync",), _set("-d"), _set("-x -y -o -h -j")),),
}
DRY_RUNS: Final[dict[str, tuple[frozenset[str], frozenset[str]]]] = {
    # Options that make it say what it would do and do nothing; options with a value, which may look like them.
    "rsync": (_set("-n --dry-run"), RSYNC_TAKES),
    "rclone": (_set("-n --dry-run"), _RCLONE_TAKES),
    "aws": (_set("--dryrun"), _AWS_TAKES),
    "gsutil": (_set("-n"), _set("-x -y -o -h -j")),
    "git clean": (_set("-n --dry-run"), _set("-e --exclude")),
    "git push": (_set("-n --dry-run"), _set("-o --push-option --repo --receive-pack --exec")),
    "npm publish": (_set("--dry-run"), _set("-w --workspace --tag --access --otp --registry")),
    "pnpm publish": (_set("--dry-run"), _set("-F --filter --tag --access --otp --registry")),
    "cargo publish": (_set("-n --dry-run"), _set("-p --package -F --features -j --jobs -Z --token --registry --index")),
}
"""Not `make -n`: it runs lines that begin with `+` and every `$(shell ...)` all the same."""
VALUELESS: Final = _set(
    # Long options without a value, so that the word after them is an option if it looks like one.
    "--archive --recursive --verbose --quiet --progress --stats --force --force-with-lease --mirror --delete"
    " --delete-after --delete-before --delete-during --delete-delay --delete-excluded --del --compress --human-readable"
    " --itemize-changes --update --checksum --all --tags --remove-source-files --allow-dirty --no-verify"
)
