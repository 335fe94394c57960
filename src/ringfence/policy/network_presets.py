"""Presets of hosts, as data: what a package manager, a git host or a model API needs, why, and what can still leave.

A row allows reading (GET and HEAD) unless it says more, on port 443 unless it names others. Left out on purpose,
because it is everybody's storage or tells nothing that a build needs: `*.google.com`, `*.googleapis.com`,
`*.blob.core.windows.net`, `*.docker.com`, hosts of telemetry, lists of revoked certificates.

What this does not protect against: each preset's `risk` says by which ways data can still leave.
"""

from typing import Final

from ringfence.dataclass import dataclass
from ringfence.values.network import GIT_PUSH, GIT_READ, SSH_PORT, NetworkRule

READ: Final = ("GET", "HEAD")
_HTTPS: Final = (443,)


@dataclass(frozen=True, slots=True, kw_only=True)
class Preset:
    """Hosts under one name."""

    name: str
    reason: str
    risk: str
    """What can still leave, or come in, if all of it is held."""
    rules: tuple[NetworkRule, ...] = ()
    aliases: tuple[str, ...] = ()
    client: str = ""
    """Whose configuration it starts from: what the person's own client is set to stands in for the public hosts."""
    argument: str = ""
    """What has to follow the name, such as `ORG/REPO`; rules hold it as `{}`."""


def _read(*hosts: str, paths: tuple[str, ...] = (), ports: tuple[int, ...] = _HTTPS) -> tuple[NetworkRule, ...]:
    return tuple(NetworkRule(host=host, ports=ports, methods=READ, paths=paths) for host in hosts)


def _post(host: str, *paths: str) -> NetworkRule:
    return NetworkRule(host=host, ports=_HTTPS, methods=("POST",), paths=paths)


def _ssh(host: str, *methods: str) -> NetworkRule:
    return NetworkRule(host=host, ports=(SSH_PORT,), methods=methods, paths=("/{}",), ssh_user="git")


def _any(*hosts: str) -> tuple[NetworkRule, ...]:
    return tuple(NetworkRule(host=host, ports=_HTTPS) for host in hosts)


_FETCH: Final = ("/**/git-upload-pack", "/**/info/lfs/objects/batch")
"""What `git fetch` and `git lfs pull` post: a list of what they have and want."""
_PUSH: Final = ("/{}.git/git-receive-pack", "/{}/git-receive-pack")

_GITHUB: Final = (
    *_read("github.com", "api.github.com", "codeload.github.com", "raw.githubusercontent.com"),
    *_read("objects.githubusercontent.com", "release-assets.githubusercontent.com"),
    *_read("github-cloud.githubusercontent.com"),  # large files of git-lfs
    _post("github.com", *_FETCH),
)
_GITLAB: Final = (*_read("gitlab.com", "registry.gitlab.com"), _post("gitlab.com", *_FETCH))
_BITBUCKET: Final = (*_read("bitbucket.org", "api.bitbucket.org"), _post("bitbucket.org", *_FETCH))

_SSH_READ: Final = "what is looked for is seen by the host; the key itself stays outside, and nothing but git uses it"
_SSH_PUSH: Final = "everything that the box can read can be pushed to that repository, also to branches that start jobs"
_NAMES_LEAK: Final = "the names and versions that are asked for are seen by whoever runs the host"
_CODE_COMES: Final = "what is installed is code of others, which runs inside the box"

PRESETS: Final[tuple[Preset, ...]] = (
    Preset(
        name="pip",
        aliases=("uv", "poetry"),
        client="pip",
        reason="Python packages, from the index and the file host that pip and uv are configured for",
        risk=f"{_NAMES_LEAK}; {_CODE_COMES}; the upload host is not allowed",
        rules=(
            *_read("pypi.org", paths=("/simple/**", "/pypi/**")),
            *_read("files.pythonhosted.org", paths=("/packages/**",)),
        ),
    ),
    Preset(
        name="python-builds",
        reason="interpreters that uv installs",
        risk=_CODE_COMES,
        rules=(
            *_read("github.com", paths=("/astral-sh/python-build-standalone/releases/**",)),
            *_read("release-assets.githubusercontent.com", "objects.githubusercontent.com"),
        ),
    ),
    Preset(
        name="conda",
        reason="packages of conda and mamba",
        risk=f"{_NAMES_LEAK}; {_CODE_COMES}",
        rules=_read("conda.anaconda.org", "repo.anaconda.com"),
    ),
    Preset(
        name="npm",
        aliases=("yarn", "pnpm", "bun"),
        client="npm",
        reason="packages of npm, from the registry that npm is configured for, and what Node itself offers",
        risk=f"{_NAMES_LEAK}; `npm audit` posts the list of dependencies; {_CODE_COMES}",
        rules=(
            *_read("registry.npmjs.org", "registry.yarnpkg.com", "repo.yarnpkg.com"),
            _post("registry.npmjs.org", "/-/npm/v1/security/**"),
            *_read("nodejs.org", paths=("/dist/**",)),
        ),
    ),
    Preset(
        name="deno",
        aliases=("jsr",),
        reason="modules of Deno and JSR",
        risk=f"{_NAMES_LEAK}; esm.sh serves any package of npm; {_CODE_COMES}",
        rules=_read("deno.land", "jsr.io", "npm.jsr.io", "esm.sh"),
    ),
    Preset(
        name="cargo",
        aliases=("rustup",),
        client="cargo",
        reason="crates, and the toolchains of rustup",
        risk=f"{_NAMES_LEAK}; {_CODE_COMES}, at build time too; publishing is not allowed",
        rules=(
            *_read("index.crates.io", "static.crates.io", "static.rust-lang.org", "sh.rustup.rs"),
            *_read("crates.io", paths=("/api/v1/**",)),
        ),
    ),
    Preset(
        name="go",
        client="go",
        reason="modules of Go by its proxy, with their checksums, and its toolchains",
        risk=f"{_NAMES_LEAK}; the proxy fetches any public repository that is named, so that a name can carry data",
        rules=(
            *_read("proxy.golang.org", "sum.golang.org"),
            *_read("go.dev", paths=("/dl/**",)),
            # The host serves everybody's buckets: only Go's own.
            *_read("storage.googleapis.com", paths=("/golang/**", "/go-module-cache/**")),
        ),
    ),
    Preset(
        name="maven",
        aliases=("gradle",),
        client="maven",
        reason="artifacts of Maven and Gradle",
        risk=f"{_NAMES_LEAK}; {_CODE_COMES}, at build time too",
        rules=(
            *_read("repo1.maven.org", "repo.maven.apache.org", "maven.google.com"),
            *_read("plugins.gradle.org", "plugins-artifacts.gradle.org", "services.gradle.org", "downloads.gradle.org"),
            *_read("dl.google.com", paths=("/android/**", "/dl/android/**")),
        ),
    ),
    Preset(
        name="ruby",
        reason="gems of Ruby",
        risk=f"{_NAMES_LEAK}; {_CODE_COMES}",
        rules=_read("rubygems.org", "index.rubygems.org"),
    ),
    Preset(
        name="php",
        aliases=("composer",),
        reason="packages of Composer; their archives often lie on GitHub: add github-read",
        risk=f"{_NAMES_LEAK}; {_CODE_COMES}",
        rules=_read("repo.packagist.org", "packagist.org"),
    ),
    Preset(
        name="dotnet",
        aliases=("nuget",),
        reason="packages of NuGet",
        risk=f"{_NAMES_LEAK}; {_CODE_COMES}",
        rules=_read("api.nuget.org", "globalcdn.nuget.org"),
    ),
    Preset(
        name="hex",
        reason="packages of Elixir and Erlang",
        risk=f"{_NAMES_LEAK}; {_CODE_COMES}",
        rules=_read("hex.pm", "repo.hex.pm", "builds.hex.pm"),
    ),
    Preset(
        name="cran",
        reason="packages of R",
        risk=f"{_NAMES_LEAK}; {_CODE_COMES}",
        rules=_read("cran.r-project.org", "cloud.r-project.org"),
    ),
    Preset(
        name="julia",
        reason="packages of Julia",
        risk=f"{_NAMES_LEAK}; {_CODE_COMES}",
        rules=_read("pkg.julialang.org"),
    ),
    Preset(
        name="apt",
        client="apt",
        reason="packages of Debian and Ubuntu, from the hosts in apt's sources",
        risk=f"{_NAMES_LEAK}, and over port 80 by everybody between; apt checks signatures",
        rules=_read("deb.debian.org", "security.debian.org", "archive.ubuntu.com", "security.ubuntu.com")
        + _read("deb.debian.org", "security.debian.org", "archive.ubuntu.com", "security.ubuntu.com", ports=(80,))
        + _read("ports.ubuntu.com", ports=(80, 443)),
    ),
    Preset(
        name="apk",
        reason="packages of Alpine",
        risk=f"{_NAMES_LEAK}; apk checks signatures",
        rules=_read("dl-cdn.alpinelinux.org", ports=(80, 443)),
    ),
    Preset(
        name="dnf",
        aliases=("yum",),
        reason="packages of Fedora; its list of mirrors names further hosts, which stay closed",
        risk=f"{_NAMES_LEAK}; dnf checks signatures",
        rules=_read("mirrors.fedoraproject.org", "dl.fedoraproject.org", ports=(80, 443)),
    ),
    Preset(
        name="containers",
        reason="images of the public registries, for clients inside; a daemon outside dials by itself",
        risk=f"{_NAMES_LEAK}; {_CODE_COMES}; pushing is not allowed",
        rules=(
            *_read("registry-1.docker.io", "auth.docker.io"),
            *_read("production.cloudflare.docker.com", "production.cloudfront.docker.com"),
            *_read("ghcr.io", "pkg-containers.githubusercontent.com", "quay.io", "mcr.microsoft.com"),
            *_read("gcr.io", "registry.k8s.io"),
        ),
    ),
    Preset(
        name="git",
        client="git",
        reason="reading the repositories that are remotes of the workspace's own git directory",
        risk="the host sees which revisions are there; on the command line and in options only, never in a policy",
    ),
    Preset(
        name="github-read",
        aliases=("github",),
        reason="reading GitHub: clones, archives, releases, raw files, its API",
        risk="what is looked for is seen by GitHub, and by whoever owns the repository in its traffic; no pushes, no "
        "issues, no gists, no GraphQL",
        rules=_GITHUB,
    ),
    Preset(
        name="github-push",
        argument="ORG/REPO",
        reason="reading GitHub, and pushing to one repository",
        risk="everything that the box can read can be pushed to that repository, also to branches that start workflows",
        rules=(*_GITHUB, _post("github.com", *_PUSH)),
    ),
    Preset(
        name="gitlab-read",
        aliases=("gitlab",),
        reason="reading gitlab.com: clones, archives, packages, its API",
        risk="what is looked for is seen by GitLab; no pushes, no issues, no snippets",
        rules=_GITLAB,
    ),
    Preset(
        name="gitlab-push",
        argument="GROUP/PROJECT",
        reason="reading gitlab.com, and pushing to one project",
        risk="everything that the box can read can be pushed to that project, also to branches that start pipelines",
        rules=(*_GITLAB, _post("gitlab.com", *_PUSH)),
    ),
    Preset(
        name="bitbucket-read",
        aliases=("bitbucket",),
        reason="reading bitbucket.org",
        risk="what is looked for is seen by Bitbucket; no pushes, no snippets",
        rules=_BITBUCKET,
    ),
    Preset(
        name="bitbucket-push",
        argument="WORKSPACE/REPO",
        reason="reading bitbucket.org, and pushing to one repository",
        risk="everything that the box can read can be pushed to that repository",
        rules=(*_BITBUCKET, _post("bitbucket.org", *_PUSH)),
    ),
    Preset(
        name="github-ssh",
        argument="ORG/REPO",
        reason="reading one repository of GitHub by SSH, signed in with a key outside (the extra `ssh`)",
        risk=_SSH_READ,
        rules=(_ssh("github.com", *GIT_READ),),
    ),
    Preset(
        name="github-ssh-push",
        argument="ORG/REPO",
        reason="the same, and pushing to it",
        risk=_SSH_PUSH,
        rules=(_ssh("github.com", *GIT_READ, *GIT_PUSH),),
    ),
    Preset(
        name="gitlab-ssh",
        argument="GROUP/PROJECT",
        reason="reading one repository of gitlab.com by SSH, signed in with a key outside (the extra `ssh`)",
        risk=_SSH_READ,
        rules=(_ssh("gitlab.com", *GIT_READ),),
    ),
    Preset(
        name="gitlab-ssh-push",
        argument="GROUP/PROJECT",
        reason="the same, and pushing to it",
        risk=_SSH_PUSH,
        rules=(_ssh("gitlab.com", *GIT_READ, *GIT_PUSH),),
    ),
    Preset(
        name="bitbucket-ssh",
        argument="WORKSPACE/REPO",
        reason="reading one repository of bitbucket.org by SSH, signed in with a key outside (the extra `ssh`)",
        risk=_SSH_READ,
        rules=(_ssh("bitbucket.org", *GIT_READ),),
    ),
    Preset(
        name="bitbucket-ssh-push",
        argument="WORKSPACE/REPO",
        reason="the same, and pushing to it",
        risk=_SSH_PUSH,
        rules=(_ssh("bitbucket.org", *GIT_READ, *GIT_PUSH),),
    ),
    Preset(
        name="huggingface",
        reason="models and datasets",
        risk=f"{_NAMES_LEAK}; models can hold code (pickle); uploads are not allowed",
        rules=(
            *_read("huggingface.co", "*.hf.co"),  # cdn-lfs and its regions
            *_read("cas-bridge.xethub.hf.co", "transfer.xethub.hf.co"),
        ),
    ),
    Preset(
        name="anthropic",
        reason="Anthropic's API",
        risk="a prompt can hold anything that the box can read; Files and Batches of the API store it",
        rules=(_post("api.anthropic.com", "/v1/**"), *_read("api.anthropic.com", paths=("/v1/**",))),
    ),
    Preset(
        name="openai",
        reason="OpenAI's API",
        risk="a prompt can hold anything that the box can read; files and assistants of the API store it",
        rules=(_post("api.openai.com", "/v1/**"), *_read("api.openai.com", paths=("/v1/**",))),
    ),
    Preset(
        name="models",
        reason="the APIs of many makers of models; name one by its host if one is enough",
        risk="a prompt can hold anything that the box can read, and each maker may keep it; hosts below "
        "openai.azure.com are everybody's",
        rules=(
            _post("api.anthropic.com", "/v1/**"),
            _post("api.openai.com", "/v1/**"),
            _post("generativelanguage.googleapis.com", "/**"),
            *_any("api.mistral.ai", "api.groq.com", "openrouter.ai", "api.deepseek.com", "api.x.ai"),
            *_any("api.cohere.com", "api.together.xyz", "api.fireworks.ai", "*.openai.azure.com"),
        ),
    ),
    Preset(
        name="bedrock",
        argument="REGION",
        reason="models of Amazon Bedrock in one region; needs a secret that signs (aws-sigv4)",
        risk="a prompt can hold anything that the box can read",
        rules=(_post("bedrock-runtime.{}.amazonaws.com", "/model/**"),),
    ),
    Preset(
        name="browsers",
        aliases=("playwright",),
        reason="the browsers that Playwright installs",
        risk=_CODE_COMES,
        rules=_read("cdn.playwright.dev", "playwright.download.prss.microsoft.com"),
    ),
)

BY_PRESET: Final = {name: preset for preset in PRESETS for name in (preset.name, *preset.aliases)}
"""Each by its name and its other names."""
