#!/bin/sh
# Runs the real command lines of coding agents against Ringfence: installs them from npm, then runs tests/agents.
#
# They are kept in ~/.cache/ringfence-agents (RINGFENCE_AGENT_CACHE), the newest at the time. The inspector of MCP wants a
# newer Node than most machines have, so that npm's own package of it is installed beside it. Nothing of theirs is run as a script of
# npm but what puts the programs in place. Arguments go to pytest.
set -eu
cd "$(dirname "$0")/.."
cache=${RINGFENCE_AGENT_CACHE:-$HOME/.cache/ringfence-agents}
command -v npm >/dev/null || { echo "npm is needed" >&2; exit 1; }
mkdir -p "$cache/agents" "$cache/inspector"
(cd "$cache/agents" && npm install --no-fund --no-audit --loglevel=error @anthropic-ai/claude-code @openai/codex @google/gemini-cli)
(cd "$cache/agents" && node node_modules/@anthropic-ai/claude-code/install.cjs)
(cd "$cache/inspector" && npm install --no-fund --no-audit --loglevel=error node@22 @modelcontextprotocol/inspector)
export RINGFENCE_AGENT_CLIS="$cache/agents/node_modules/.bin" RINGFENCE_INSPECTOR="$cache/inspector/node_modules"
exec .venv/bin/python -m pytest -q tests/agents "$@"
