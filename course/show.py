"""Plots and tables, one call each. Matplotlib is imported at the first plot."""

BLUE, ORANGE, GREEN, GREY = "#3b6ea8", "#d9822b", "#4c9a6a", "#8a8a8a"


def figure(width=7.0, height=3.2, columns=1):
    """(figure, axes) in the course's style."""
    import matplotlib.pyplot as plt

    plt.rcParams.update({
        "axes.spines.top": False, "axes.spines.right": False, "axes.titlesize": 11,
        "axes.grid": True, "grid.alpha": 0.3, "font.size": 10, "figure.dpi": 100,
        "axes.prop_cycle": plt.cycler(color=[BLUE, ORANGE, GREEN, GREY]),
    })
    fig, axes = plt.subplots(1, columns, figsize=(width, height), layout="constrained")
    return fig, axes


def finish():
    import matplotlib.pyplot as plt

    plt.show()


def lines(series, title, x_label, y_label, x=None):
    """One curve a name. series: {name: sequence of numbers, or (x, y)}."""
    _, axes = figure()
    for name, values in series.items():
        if isinstance(values, tuple):
            axes.plot(*values, label=name)
        else:
            axes.plot(x if x is not None else range(len(values)), values, label=name)
    axes.set(title=title, xlabel=x_label, ylabel=y_label)
    if len(series) > 1:
        axes.legend()
    finish()


def bars(values, title, y_label):
    """One bar a name, its value above it. values: {name: number}."""
    _, axes = figure()
    drawn = axes.bar(list(values), list(values.values()), color=BLUE, width=0.6)
    axes.bar_label(drawn, fmt="%.3g")
    axes.grid(axis="x", visible=False)
    axes.margins(y=0.12)                                      # room for the number above the tallest bar
    axes.set(title=title, ylabel=y_label)
    finish()


def heatmaps(matrices, labels=None, x_label="key", y_label="query"):
    """Matrices side by side. matrices: {title: (rows, columns)}; labels: names of rows and columns."""
    import numpy as np

    fig, axes = figure(width=3.2 * len(matrices) + 0.6, height=3.4, columns=len(matrices))
    for axis, (title, matrix) in zip(np.atleast_1d(axes), matrices.items()):
        drawn = axis.imshow(np.asarray(matrix), cmap="Blues", vmin=0)
        axis.set(title=title, xlabel=x_label, ylabel=y_label)
        axis.grid(visible=False)
        if labels is not None:
            axis.set_xticks(range(len(labels)), labels, rotation=60 if max(map(len, labels)) > 2 else 0)
            axis.set_yticks(range(len(labels)), labels)
        fig.colorbar(drawn, ax=axis, shrink=0.8)
    finish()


def table(rows, header):
    """Print rows in columns. rows: sequences of str or numbers; header: names of the columns."""
    cells = [[str(c) for c in header], *([f"{c:.4g}" if isinstance(c, float) else str(c) for c in row] for row in rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(header))]
    for row in cells:
        print("  ".join(c.ljust(w) for c, w in zip(row, widths)).rstrip())


def stacked_bars(values, names, title, y_label):
    """One bar a name, made of parts. values: {part: a number for each name}; names: of the bars."""
    import matplotlib.pyplot as plt

    _, axes = figure()
    bottom = [0] * len(names)
    for (part, numbers), color in zip(values.items(), plt.get_cmap("tab10").colors):
        axes.bar(names, numbers, bottom=bottom, label=part, color=color, width=0.6)
        bottom = [low + number for low, number in zip(bottom, numbers)]
    axes.grid(axis="x", visible=False)
    axes.set(title=title, ylabel=y_label)
    axes.legend(loc="upper left", bbox_to_anchor=(1, 1))
    finish()
