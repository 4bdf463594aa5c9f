"""A data set of PyTorch whose images are in a folded array, and a net that learns from it.

The images are 60 000 pictures of 28 times 28 pixels of 32 bits: 179 MiB. Each is a few strokes on
black, and its class is the number of strokes. They come in random order, so most of them are out
when their turn comes.
"""

import functools

import beside
import numpy as np
import ramfold
import torch

SEED = 20_261_127
IMAGES = 60_000
SIDE = 28
CLASSES = 4
LIMIT = "8M"


def strokes(draw, count):
    """A picture: thin lines between random points, a little blurred."""
    picture = np.zeros((SIDE, SIDE), np.float32)
    for start_x, start_y, end_x, end_y in draw.uniform(4, SIDE - 4, (count, 4)):
        steps = np.linspace(0, 1, 40)
        x = (start_x + (end_x - start_x) * steps).astype(int)
        y = (start_y + (end_y - start_y) * steps).astype(int)
        picture[y, x] = 1
        picture[y, x + 1] = np.maximum(picture[y, x + 1], np.float32(0.5))
    return picture


class Strokes(torch.utils.data.Dataset):
    """Images that ``empty(shape, dtype)`` has room for, as tensors that share its memory."""

    def __init__(self, empty):
        draw = np.random.default_rng(SEED)
        images = empty((IMAGES, 1, SIDE, SIDE), np.float32)
        labels = draw.integers(0, CLASSES, IMAGES)
        for number, label in enumerate(labels):
            images[number, 0] = strokes(draw, 1 + label)
        self.images = torch.from_numpy(np.asarray(images))
        self.labels = torch.from_numpy(labels)

    def __len__(self):
        return IMAGES

    def __getitem__(self, number):
        return self.images[number], self.labels[number]


def work(empty):
    torch.manual_seed(SEED)
    torch.set_num_threads(1)
    data = Strokes(empty)
    model = torch.nn.Sequential(
        torch.nn.Conv2d(1, 8, 5, stride=2), torch.nn.ReLU(), torch.nn.Flatten(),
        torch.nn.Linear(8 * 12 * 12, CLASSES))
    adam = torch.optim.Adam(model.parameters(), lr=0.002)
    losses = []
    for images, labels in torch.utils.data.DataLoader(data, batch_size=100, shuffle=True):
        loss = torch.nn.functional.cross_entropy(model(images), labels)
        adam.zero_grad()
        loss.backward()
        adam.step()
        losses.append(loss.item())
    return {"first loss": losses[0], "last losses": losses[-3:], "sum": sum(losses)}, data


def run(way):
    if way == "folded":
        return work(functools.partial(ramfold.empty, limit=LIMIT))
    return work(np.empty)


if __name__ == "__main__":
    beside.main(run, "plain", "folded")
