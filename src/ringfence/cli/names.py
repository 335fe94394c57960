"""Which commands there are, and what each does in a line."""

COMMANDS: dict[str, str] = {
    "init": "Write a policy that starts from this project, and say what it means.",
    "run": "Run a command in a sandbox, and exit as it exits.",
    "check": "Say what would be decided about a command or a piece of code, and where it would go, without running it.",
    "serve": "Serve sandboxes over HTTP: on a Unix socket of yours alone and, when asked, on an address.",
    "token": "Tokens of the server: make one, list them, revoke one.",
    "mcp": "Serve the sandbox to an agent as tools of MCP, over stdio; or tell a client of it.",
    "shell": "Open a shell in a sandbox, on this terminal.",
    "wrap": "Run a coding agent inside the wall: all of it, with every command that it starts.",
    "hook": "What a coding agent calls before its shell, so that commands run inside the wall; how to install it.",
    "workspace": "Shadows of projects: look at what was done in them, commit it, save it, throw it away.",
    "fetch": "Fetch a page as text, or a file into the workspace, outside the wall and by the policy's rules.",
    "http": "Send one HTTP request, outside the wall and by the policy's rules, and show the answer.",
    "browser": "Say which browser agents would use here, and how to get one.",
    "policy": "Check or explain a policy file.",
    "net": "What a box may reach, what was reached, and which policy would allow it.",
    "config": "Show the settings in force, and where each comes from.",
    "pool": "Show the pools of boxes that processes of yours keep ready.",
    "keeper": "Show or stop the process that holds the command line ready.",
    "bundle": "Portable tools in signed bundles: build, sign, verify, install and run them.",
    "image": "Build, list and check images for containers.",
    "violations": "Show what was refused: by type, by severity, and the last ones.",
    "audit": "Read, search and verify the journal of what was run.",
    "doctor": "Say what this machine can guarantee, what is missing, and how to get it.",
}
"""Each is `ringfence.cli.commands.NAME`, with a function or a group of that name; a test compares the texts."""
