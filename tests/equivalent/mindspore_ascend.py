"""Mutants of solutions/mindspore/ascend.py that compute the same."""

TO = "mindspore.ascend.to_layout"
FROM = "mindspore.ascend.from_layout"
ARGUMENTS = "mindspore.ascend.flash_attention_arguments"
PAD = "mindspore.ascend.AutoPad"

EQUIVALENT = {
    (TO, "line 10: arguments swapped"): "two axes change places, whichever is named first",
    (TO, "line 14: arguments swapped"): "two axes change places, whichever is named first",
    (TO, "line 16: arguments swapped"): "two axes change places, whichever is named first",
    (FROM, "line 7: arguments swapped"): "two axes change places, whichever is named first",
    (FROM, "line 9: arguments swapped"): "two axes change places, whichever is named first",
    (ARGUMENTS, "line 23: without line 25"): "sparse_mode 0 with a whole mask and no band is sparse_mode 1",
    (ARGUMENTS, "line 25: 1 to 0"): "sparse_mode 0 with a whole mask and no band is sparse_mode 1",
    (PAD, "line 19: Gt to GtE"): "where nothing is missing, no zeros are joined",
    (PAD, "line 19: 0 to -1"): "where nothing is missing, no zeros are joined",
}
