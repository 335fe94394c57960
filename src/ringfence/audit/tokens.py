"""Tokens that are known by how they begin: one row for each kind, with its alphabet and length.

The facts are those of gitleaks' public rules (prefix, alphabet, length), and of what vendors publish; lengths are lower
bounds, since vendors make tokens longer and seldom shorter. What has no telling beginning (32 hexadecimal digits that
are a secret only because the word `algolia` is near) are not here: they would take out hashes and ids; the name that
such a value is assigned to gives it away (`shapes.py`).

Every token holds a run of at least sixteen letters, digits, `_` and `-`. That run is looked for first, and few commands
have one; then the words' first three characters are compared with those of the rows.
"""

import re
from typing import Final

from ringfence.audit.shapes import compiled
from ringfence.dataclass import dataclass

_RUN: Final = re.compile(r"[A-Za-z0-9_-]{16}")
"""What a text without tokens mostly lacks."""
_MOST: Final = 1024
"""Characters that are taken out; no token of the rows is longer."""

_ALNUM: Final = "A-Za-z0-9"
_WORD: Final = r"A-Za-z0-9_\-"
_DOTTED: Final = r"A-Za-z0-9_.=\-"
_HEX: Final = "0-9A-Fa-f"
_BASE64: Final = "A-Za-z0-9+/=_-"
_UPPER: Final = "A-Z0-9"


@dataclass(frozen=True, slots=True)
class Token:
    """One kind: how it begins, and what follows."""

    name: str
    prefixes: tuple[str, ...]
    pattern: str
    why: str

    def take_out(self, text: str) -> str:
        return compiled(self.pattern).sub(f"[redacted: {self.name}]", text)


def _row(name: str, prefixes: str, alphabet: str, least: int, why: str) -> Token:
    """Prefixes apart by blanks, each followed by at least so many characters of the alphabet."""
    literal = tuple(prefixes.split())
    begin = "|".join(map(re.escape, literal))
    # Possessive: nothing is given back, so that a text of nothing but prefixes is passed once.
    return Token(name, literal, rf"(?<![A-Za-z0-9])(?:{begin})[{alphabet}]{{{least},{_MOST}}}+", why)


def _shaped(name: str, prefixes: str, pattern: str, why: str) -> Token:
    """With parts of its own; the prefixes are what a text has to hold."""
    return Token(name, tuple(prefixes.split()), pattern, why)


TOKENS: Final = (
    # --- source, packages, builds: whoever has one writes what others run ---
    _row("GitHub token", "ghp_ gho_ ghu_ ghs_ ghr_", _ALNUM, 30, "personal, OAuth, user, server and refresh tokens"),
    _row("GitHub token", "github_pat_", "A-Za-z0-9_", 22, "fine-grained ones"),
    _row(
        "GitLab token",
        "glpat- gldt- glrt- glcbt- glptt- glft- glsoat- gloas- glffct- glimt- glagent-",
        r"A-Za-z0-9_.\-",
        20,
        "personal, deploy, runner, job, trigger, feed, SCIM, OAuth, feature-flag, mail and agent tokens",
    ),
    _row("GitLab token", "GR1348941", _WORD, 20, "registers runners"),
    _row("npm token", "npm_", _ALNUM, 36, "publishes packages"),
    _row("PyPI token", "pypi-", _WORD, 50, "publishes packages"),
    _row("RubyGems token", "rubygems_", _HEX, 48, "publishes packages"),
    _row("Clojars token", "CLOJARS_", _ALNUM, 60, "publishes packages"),
    _row("Artifactory key", "AKCp cmVmd", _ALNUM, 55, "the second is a reference token: `ref` in base64"),
    _row("Docker Hub token", "dckr_pat_ dckr_oat_", _WORD, 20, "personal and organisation tokens"),
    _row("Sourcegraph token", "sgp_", r"A-Za-z0-9_", 40, "with and without the instance's id"),
    _row("Octopus Deploy key", "API-", _UPPER, 26, "deploys"),
    _row("Harness token", "pat. sat.", r"A-Za-z0-9_.\-", 66, "personal and service tokens, in three parts"),
    _row("Infracost key", "ico-", _ALNUM, 32, "cost estimates of a cloud account"),
    _row("Prefect key", "pnu_ pnb_", _ALNUM, 36, "users and bots"),
    # --- clouds and infrastructure ---
    _shaped(
        "AWS key id",
        "AKIA ASIA ABIA ACCA A3T",
        r"(?<![0-9A-Za-z])(?:AKIA|ASIA|ABIA|ACCA|A3T[A-Z0-9])[0-9A-Z]{16}(?![0-9A-Za-z])",
        "names an account's key; its secret half is found by the name that it is assigned to",
    ),
    _row("Google key", "AIza", _WORD, 35, "API keys"),
    _row("Google token", "ya29. GOCSPX-", _WORD, 20, "OAuth access tokens and client secrets"),
    _shaped(
        "Azure client secret",
        "Q~",
        r"(?<![\w~.-])[A-Za-z0-9_~.]{3}\dQ~[A-Za-z0-9_~.\-]{31,34}",
        "Entra ID's; the fifth and sixth characters are always the same",
    ),
    _row("Alibaba key id", "LTAI", _ALNUM, 16, "names an account's key"),
    _row("Yandex key", "AQVN t1.", r"A-Za-z0-9_.=\-", 35, "API keys and IAM tokens"),
    _row("DigitalOcean token", "dop_v1_ doo_v1_ dor_v1_", _HEX, 64, "personal, OAuth and refresh tokens"),
    _row("Heroku key", "HRKU-", _WORD, 36, "old ones are plain UUIDs and have no shape"),
    _row("Fly.io token", "fo1_ fm1a_ fm1r_ fm2_", _BASE64, 43, "access tokens and macaroons"),
    _row("Vercel token", "vercel_blob_rw_", _WORD, 20, "reads and writes a store"),
    _row("Supabase token", "sbp_ sb_secret_", _WORD, 20, "manages projects; `sb_publishable_` is public"),
    _row("PlanetScale token", "pscale_tkn_ pscale_oauth_ pscale_pw_", _DOTTED, 32, "service tokens and passwords"),
    _row("Databricks token", "dapi", _HEX, 32, "personal tokens"),
    _row("ClickHouse key", "4b1d", _ALNUM, 38, "of ClickHouse Cloud"),
    _row("Scalingo token", "tk-us-", _WORD, 48, "deploys"),
    _row("Tailscale key", "tskey-", _WORD, 20, "lets machines into the network"),
    _row("Defined Networking key", "dnkey-", _DOTTED, 60, "lets machines into the network"),
    _shaped("Cloudflare key", "v1.0-", r"(?<![A-Za-z0-9])v1\.0-[0-9a-f]{24}-[0-9a-f]{100,200}", "of the origin CA"),
    _shaped(
        "Terraform token",
        ".atlasv1.",
        r"(?<![A-Za-z0-9])[A-Za-z0-9]{14}\.atlasv1\.[A-Za-z0-9_=\-]{40,128}",
        "of HCP Terraform, users and organisations",
    ),
    _row("Pulumi token", "pul-", _HEX, 40, "manages infrastructure"),
    _row("Vault token", "hvs. hvb. hvr.", _WORD, 24, "service, batch and recovery tokens; old ones begin with `s.`"),
    _row("Doppler token", "dp.pt. dp.st. dp.ct. dp.sa. dp.scim. dp.audit.", r"A-Za-z0-9_.\-", 40, "reads secrets"),
    _row("1Password token", "ops_eyJ", _BASE64, 100, "of service accounts"),
    _shaped(
        "1Password key",
        "A3-",
        r"(?<![A-Za-z0-9])A3-[A-Z0-9]{6}-[A-Z0-9]{6}(?:-?[A-Z0-9]{5}){4}(?![A-Za-z0-9])",
        "the secret key of an account",
    ),
    _row("age key", "AGE-SECRET-KEY-1", _UPPER, 58, "decrypts"),
    _row("OpenShift token", "sha256~", _WORD, 43, "of a cluster's user; an image's digest has a colon"),
    # --- models ---
    _row("Anthropic key", "sk-ant-", _WORD, 16, "before OpenAI's, which begin alike"),
    _row("OpenRouter key", "sk-or-", _WORD, 32, "before OpenAI's, which begin alike"),
    _shaped(
        "OpenAI key",
        "sk-",
        r"(?<![A-Za-z0-9_-])sk-(?:(?:proj|svcacct|admin|None)-[A-Za-z0-9_\-]{20,1024}+|[A-Za-z0-9]{32,1024}+)",
        "project, service and old keys; a bare `sk-` with hyphens in it is more likely a name",
    ),
    _row("Hugging Face token", "hf_ api_org_", _ALNUM, 30, "reads and publishes models"),
    _row("Groq key", "gsk_", _ALNUM, 40, "pays for use"),
    _row("xAI key", "xai-", _ALNUM, 60, "pays for use"),
    _row("Perplexity key", "pplx-", _ALNUM, 40, "pays for use"),
    _row("Replicate token", "r8_", _ALNUM, 32, "pays for use"),
    _row("LangSmith key", "lsv2_pt_ lsv2_sk_", r"A-Za-z0-9_", 32, "reads traces"),
    # --- messages and people ---
    _row(
        "Slack token",
        "xoxa- xoxb- xoxc- xoxd- xoxe- xoxe. xoxo- xoxp- xoxr- xoxs- xapp-",
        r"A-Za-z0-9.%+/=\-",
        10,
        "bots, users, apps, configuration, and the two of a browser's session",
    ),
    _shaped(
        "web hook",
        "hooks.slack.com/ webhook.office.com/ /api/webhooks/",
        r"(?:(?<=hooks\.slack\.com/services/)|(?<=hooks\.slack\.com/workflows/)|(?<=hooks\.slack\.com/triggers/)"
        r"|(?<=webhook\.office\.com/webhookb2/)|(?<=/api/webhooks/))[A-Za-z0-9/@_\-]{20,512}+",
        "of Slack, Teams and Discord: the path is the secret",
    ),
    _shaped(
        "Telegram token",
        ":A",
        r"(?<![0-9A-Za-z])\d{8,12}:A[A-Za-z0-9_\-]{33,36}(?![A-Za-z0-9_-])",
        "a bot's id and its secret",
    ),
    _shaped("Twilio key", "SK", r"(?<![0-9A-Za-z])SK[0-9a-f]{32}(?![0-9A-Za-z])", "sends messages"),
    _row("SendGrid key", "SG.", _DOTTED, 60, "sends mail"),
    _row("Brevo key", "xkeysib- xsmtpsib-", _WORD, 64, "sends mail"),
    _shaped("Mailgun key", "key-", r"(?<![0-9A-Za-z-])key-[0-9a-f]{32}(?![0-9A-Za-z])", "sends mail"),
    _shaped(
        "Mailchimp key", "-us", r"(?<![0-9A-Za-z])[0-9a-f]{32}-us\d{1,2}(?![0-9A-Za-z])", "the end names a data centre"
    ),
    _row("Atlassian token", "ATATT3 ATCTT3", _DOTTED, 100, "Jira, Confluence and Bitbucket"),
    _row("Linear key", "lin_api_ lin_oauth_", _ALNUM, 32, "reads and writes issues"),
    _row("Notion token", "ntn_", _ALNUM, 40, "reads and writes pages"),
    _row("Typeform token", "tfp_", _DOTTED, 40, "reads answers"),
    _row("ReadMe key", "rdme_", _ALNUM, 60, "writes documents"),
    _row("Figma token", "figd_ figu_", _WORD, 30, "reads designs"),
    _row("Frame.io token", "fio-u-", _DOTTED, 60, "reads films"),
    # --- money and shops ---
    _row(
        "Stripe key",
        "sk_live_ sk_test_ sk_prod_ rk_live_ rk_test_ rk_prod_ whsec_",
        _ALNUM,
        16,
        "secret and restricted keys, and those that sign web hooks; `pk_` is public",
    ),
    _row("Square token", "sq0atp- sq0csp- EAAA", _WORD, 22, "access tokens and secrets of applications"),
    _row("Shopify token", "shpat_ shpca_ shppa_ shpss_", _HEX, 32, "access tokens and shared secrets"),
    _row("Flutterwave key", "FLWSECK_TEST- FLWSECK-", _ALNUM, 12, "takes payments"),
    _row("Duffel token", "duffel_test_ duffel_live_", _DOTTED, 40, "books flights"),
    _row("EasyPost key", "EZAK EZTK", _ALNUM, 54, "buys postage"),
    _row("Shippo token", "shippo_live_ shippo_test_", _HEX, 40, "buys postage"),
    _row("Facebook token", "EAAM EAAC", _ALNUM, 80, "of pages and users"),
    _row("Adobe secret", "p8e-", _ALNUM, 32, "of OAuth clients"),
    # --- what watches ---
    _row("Grafana token", "glc_ glsa_ eyJrIjoi", _BASE64, 32, "cloud, service accounts and old API keys"),
    _row("New Relic key", "NRAK- NRII- NRJS- NRRA-", _WORD, 19, "users, ingest, browser and queries"),
    _row("Dynatrace token", "dt0c01. dt0s01. dt0s02.", r"A-Za-z0-9.", 80, "in two parts"),
    _row("Sentry token", "sntrys_ sntryu_", _BASE64, 40, "organisations and users"),
    _row("Postman key", "PMAK-", _WORD, 50, "reads collections, which hold further secrets"),
    _shaped(
        "MaxMind key",
        "_mmk",
        r"(?<![0-9A-Za-z])[A-Za-z0-9]{6}_[A-Za-z0-9]{29}_mmk(?![0-9A-Za-z])",
        "known by its end",
    ),
    _row("SettleMint token", "sm_aat_ sm_pat_ sm_sat_", _ALNUM, 16, "applications, persons and services"),
    _shaped(
        "JWT",
        "eyJ",
        # One start for each word, and nothing given back: a text of nothing but `eyJ` is passed once.
        r"(?<![A-Za-z0-9_-])eyJ[A-Za-z0-9_\-]{8,4096}+\.eyJ[A-Za-z0-9_\-]{8,4096}+(?:\.[A-Za-z0-9_\-]{0,4096}+)?",
        "`eyJ` is how JSON begins in base64",
    ),
)
"""In this order: a row that says more comes before one that says less."""
_KEY: Final = 3
"""Characters by which rows are looked up."""
_STARTS: Final = re.compile(r"(?<![A-Za-z0-9])(?=([A-Za-z0-9][A-Za-z0-9_.~/:-]{2}))")


def _by_start() -> dict[str, tuple[int, ...]]:
    """Which rows begin with these characters."""
    found: dict[str, tuple[int, ...]] = {}
    for place, token in enumerate(TOKENS):
        for prefix in token.prefixes:
            if prefix[0].isalnum() and len(prefix) >= _KEY:
                found[prefix[:_KEY]] = (*found.get(prefix[:_KEY], ()), place)
    return found


_BY_START: Final = _by_start()
_ANYWHERE: Final = tuple(
    (prefix, place)
    for place, token in enumerate(TOKENS)
    for prefix in token.prefixes
    if not (prefix[0].isalnum() and len(prefix) >= _KEY)
)
"""Rows whose sign is not how they begin, or is too short to be looked up."""


def take_out_tokens(text: str) -> str:
    """The text without tokens."""
    if _RUN.search(text) is None:
        return text
    places = {place for sign, place in _ANYWHERE if sign in text}
    for start in _STARTS.findall(text):
        if start in _BY_START:
            places.update(_BY_START[start])
    for place in sorted(places):
        text = TOKENS[place].take_out(text)
    return text
