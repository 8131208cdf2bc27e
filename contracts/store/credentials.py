"""Passwords of the ACL users, kept on this machine: a folder a store, a file a user.

`labmates-ROLE` holds the password, `labmates-ROLE.url` the address with it, ready for
`LABMATES_STORE_URL`; both have mode 600. The folder appears whole or not at all, so that processes
which start at once agree on the passwords.
"""

import hashlib
import secrets
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import quote, urlsplit, urlunsplit

from contracts.store.acl import USERS, rules_of, user_name
from contracts.store.home import labmates_home, store_dir

EMBEDDED = "embedded"


def folder_of(url: str, home: Path | None = None) -> Path:
    """Give the folder of a store's credentials; an empty `url` is the embedded server."""
    name = EMBEDDED if not url else hashlib.sha256(_bare(url).encode()).hexdigest()[:16]
    return store_dir(home or labmates_home()) / "credentials" / name


def passwords_of(folder: Path) -> dict[str, str]:
    """Read the passwords of a store's users; made where there are none yet."""
    if not folder.is_dir():
        folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        fresh = Path(tempfile.mkdtemp(prefix="new-", dir=folder.parent))
        for who in USERS:
            file = fresh / user_name(who)
            file.touch(mode=0o600)
            file.write_text(secrets.token_hex(24) + "\n", encoding="ascii")
        try:
            fresh.rename(folder)
        except OSError:  # another process was quicker; its passwords hold
            shutil.rmtree(fresh)
    return {who: (folder / user_name(who)).read_text(encoding="ascii").strip() for who in USERS}


def write_acl_file(home: Path, file: Path) -> None:
    """Write the users of the embedded server of `home` as the ACL file that it starts with."""
    file.touch(mode=0o600)
    file.write_text(acl_file(passwords_of(folder_of("", home))), encoding="ascii")


def acl_file(passwords: Mapping[str, str]) -> str:
    """Give the users as an ACL file; the default user stays the person's own."""
    lines = ["user default on nopass sanitize-payload ~* &* +@all"]
    for who, password in passwords.items():
        digest = hashlib.sha256(password.encode()).hexdigest()
        lines.append(f"user {user_name(who)} on #{digest} {' '.join(rules_of(who))}")
    return "\n".join(lines) + "\n"


def url_of(url: str, who: str, password: str) -> str:
    """Give a store's address with a user's credentials."""
    parts = urlsplit(_bare(url))
    place = f"{user_name(who)}:{quote(password, safe='')}@{parts.netloc}"
    return urlunsplit((parts.scheme, place, parts.path, parts.query, ""))


def credential_url(store: str, address: str, who: str, home: Path | None = None) -> str | None:
    """Give `address` with the credentials that this machine keeps for a user; None without any.

    Args:
        store: The store as it was asked for; empty means the embedded server.
        address: Where it is. One that names a user already stays as it is: None.
        who: A role, `operator` or `reader`.
        home: LABMATES_HOME; None means the environment's.
    """
    if urlsplit(address).username:
        return None
    file = folder_of(store, home) / user_name(who)
    try:
        password = file.read_text(encoding="ascii").strip()
    except FileNotFoundError:
        return None
    return url_of(address, who, password)


def _bare(url: str) -> str:
    """Give an address without user, password and fragment."""
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, parts.query, ""))
