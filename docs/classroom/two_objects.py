"""The classroom problem: two objects, two kernels, and every formula in three numbers.

It has the problem (`stack`, `em`), L and the bound as functions of two numbers, written without
matrices, the paths of the package's own steps, and the map on which they are drawn.
"""

import base64
from io import BytesIO

import matplotlib.pyplot as plt
import numpy as np
from PIL import Image

from mkmc_prob import EM, GaussianModel, WishartPrior, stack_kernels
from mkmc_prob.em.methods import method_of
from mkmc_prob.em.state import State

both = np.array([[2.0, 1.0], [1.0, 2.0]])  # kernel 1 shows a and b
only_a = 4.0  # kernel 2 shows a
strength = 0.5  # lambda
nu = np.array([1.0, 4.0])
weight = strength + nu.sum()  # lambda + N

stack = stack_kernels(
    {"both": both, "only a": np.array([[only_a, np.nan], [np.nan, np.nan]])}, objects=["a", "b"]
)
em = EM(stack, WishartPrior(strength), degrees_of_freedom=nu)

alpha = (strength + nu[0] * both[0, 0] + nu[1] * only_a) / weight  # M_aa after every step


def model_at(c, d):
    """Return the model with M_aa = alpha, M_ab = c and M_bb = d."""
    return GaussianModel(np.array([[alpha, c], [c, d]]), objects=["a", "b"])


def log_likelihood(c, d):
    """Return L at M_ab = c, M_bb = d, numbers or arrays; NaN where M is not positive definite."""
    c, d = np.broadcast_arrays(np.asarray(c, dtype=float), np.asarray(d, dtype=float))
    det = np.where(alpha * d > c**2, alpha * d - c**2, np.nan)
    of_both = 2 * np.log(2 * np.pi) + np.log(det)
    of_both += (d * both[0, 0] - 2 * c * both[0, 1] + alpha * both[1, 1]) / det
    of_a = np.log(2 * np.pi) + np.log(alpha) + only_a / alpha
    prior = np.log(det) + (d + alpha) / det
    return -0.5 * (nu[0] * of_both + nu[1] * of_a + strength * prior)


def em_map(c, d):
    """Return M_ab and M_bb after an EM step."""
    A = c / alpha  # regression of b on a
    C = d - c * A  # and the variance that it leaves
    cross, variance = only_a * A, C + A**2 * only_a  # the E-step: kernel 2's entries ab and bb
    return (
        (nu[0] * both[0, 1] + nu[1] * cross) / weight,
        (strength + nu[0] * both[1, 1] + nu[1] * variance) / weight,
    )


def bound(c, d, at):
    """Return the Q-function plus the entropy, taken at the point `at`: it touches L there."""
    det = np.where(alpha * d > c**2, alpha * d - c**2, np.nan)
    c_next, d_next = em_map(*at)  # S + lambda I is (lambda + N) times the next model
    trace = (d * alpha - 2 * c * c_next + alpha * d_next) / det
    hidden = at[1] - at[0] ** 2 / alpha  # C, of kernel 2
    entropy = 0.5 * nu[1] * np.log(2 * np.pi * np.e * hidden)
    return entropy - nu.sum() * np.log(2 * np.pi) - 0.5 * weight * (np.log(det) + trace)


slope = nu[0] * both[0, 1] / (strength + nu[0] * both[0, 0])  # regression at the maximum
rest = (strength + nu[0] * (both[1, 1] - slope * both[0, 1])) / (strength + nu[0])
maximum = slope * alpha, rest + slope**2 * alpha  # exercise 3

paper_start = tuple(em.initial_model().matrix[:, 1])
far_start = -2.2, 3.6


def path_of(method, start, steps):
    """Return (M_ab, M_bb) of the start and of every step of a method, one a row."""
    state, method = State(0, model_at(*start)), method_of(method, em)
    points = [start]
    for _ in range(steps):
        state = method.step(state.evaluated(em))
        points.append(state.model.matrix[:, 1])
        assert np.isclose(state.model.matrix[0, 0], alpha)  # in the plane
    return np.array(points)


def draw_map(ax, levels=(0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10)):
    """Draw lines of equal L, so many nats below the maximum, and the edge of the models."""
    c, d = np.meshgrid(np.linspace(-4, 4, 401), np.linspace(0.01, 5, 400))
    below = log_likelihood(*maximum) - log_likelihood(c, d)
    lines = ax.contour(c, d, below, levels, colors="0.6", linewidths=0.8)
    ax.clabel(lines, fontsize=7, fmt="%g")
    edge = np.linspace(-4, 4, 201)
    ax.fill_between(edge, edge**2 / alpha, color="0.9")
    ax.plot(edge, edge**2 / alpha, color="0.3", linewidth=1)
    ax.plot(*maximum, "k+", markersize=9)
    ax.set(xlabel="$M_{ab}$", ylabel="$M_{bb}$", xlim=(-4, 4), ylim=(0, 5))


def along(one, other, shares):
    """Return points on the line through two points: 0 is the one, 1 the other."""
    one, other = np.asarray(one), np.asarray(other)
    return np.asarray(one)[:, None] + (other - one)[:, None] * np.asarray(shares)


def new_figure(columns, height=3.6):
    """Return a figure of this many drawings beside each other."""
    return plt.subplots(1, columns, figsize=(3 + 2.6 * columns, height), layout="constrained")


def pixels(figure):
    """Return what a figure looks like now, as a picture with few colors."""
    figure.set_dpi(80)
    figure.canvas.draw()
    return Image.fromarray(np.array(figure.canvas.buffer_rgba())).convert("RGB").quantize(64)


class Animation:
    """Pictures in a row, as a GIF inside the page: nothing is fetched."""

    def __init__(self, pictures, *, milliseconds, words):
        file, self.words = BytesIO(), words
        first, *others = pictures
        options = {"save_all": True, "duration": milliseconds, "loop": 0}
        first.save(file, "GIF", append_images=others, **options)
        self.gif = file.getvalue()

    def _repr_html_(self):
        data = base64.b64encode(self.gif).decode()
        image = f'<img alt="{self.words}" src="data:image/gif;base64,{data}">'
        return f"<details open><summary>Close this to stop it</summary>{image}</details>"
