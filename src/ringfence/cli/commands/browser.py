"""`ringfence browser`: which browser agents would use here, and how to get one."""

from ringfence.cli.exits import Finished
from ringfence.cli.group import make_group
from ringfence.manager.browser_install import FONTS, found_browsers, how_to_install, is_small

browser = make_group("Say which browser agents would use here, and how to get one.")


@browser.command()
def install() -> None:
    """Show the browsers of this machine, and the command that installs one.

    Installs nothing itself: that is the system's business. Exits with 0 if there is a browser, else with 1.
    """
    found = found_browsers()
    for each in found:
        print(f"{each.path} ({each.kind}){' - used by default' if each.is_default else ''}")
    if not any(map(is_small, found)):
        print("No browser was found. To install one:" if not found else "A smaller one can be installed:")
        for line in how_to_install():
            print(f"  {line}")
        print(f"  {FONTS}")
    raise Finished(0 if found else 1)
