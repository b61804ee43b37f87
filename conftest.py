"""nbval walks the learner's path: each stub is run as if the reference answer had been typed into its cell."""
import os
import tempfile

import pytest
from nbval.plugin import IPyNbFile

from tools.inject import inject

os.environ["GPT_TWICE_WORK"] = tempfile.mkdtemp(prefix="gpt-twice-")   # passed answers go here, never to work/

collect_stubs = IPyNbFile.collect


def collect(self):
    for item in collect_stubs(self):
        item.cell.source = inject(item.cell.source)
        yield item


IPyNbFile.collect = collect
