"""PyTorch Geometric: steps of training a network on a graph of 50,000 nodes. It gathers and scatters, bound by memory."""
from protocol import Page

page = Page()
import torch
from models import train
from torch.nn import functional
from torch_geometric.nn import GCNConv

NODES, EDGES, WIDTH, CLASSES = 50_000, 500_000, 64, 10


class Network(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = GCNConv(WIDTH, WIDTH), GCNConv(WIDTH, CLASSES)

    def forward(self, x, edges):
        return self.second(functional.relu(self.first(x, edges)), edges)


def main():
    x = torch.randn(NODES, WIDTH, device="cuda")
    edges = torch.randint(0, NODES, (2, EDGES), device="cuda")
    labels = torch.randint(0, CLASSES, (NODES,), device="cuda")
    model = Network().cuda().train()
    optimiser = torch.optim.Adam(model.parameters())
    train(page, lambda: functional.cross_entropy(model(x, edges), labels), optimiser)


if __name__ == "__main__":
    main()
