import os, glob, random
import cv2, h5py
import numpy as np
import pandas as pd
import torch, torch.nn as nn
from PIL import Image
from torch.utils import data
from torchvision import transforms as tf
from concurrent.futures import ThreadPoolExecutor

class Trainer:
    def __init__(self, net, ds_train, ds_val):
        self.net = net
        self.device = torch.device("cuda")
        self.train_loader = data.DataLoader(ds_train, batch_size=8, shuffle=True, num_workers=4, pin_memory=True)
        self.val_loader = data.DataLoader(ds_val, batch_size=8)
    def epoch(self, opt, crit):
        for i, sample in enumerate(self.train_loader, 0):
            x, y = sample[0].to(self.device), sample[1].to(self.device)  # expect: pin-without-non-blocking
            opt.zero_grad(set_to_none=True)
            loss = crit(self.net(x), y)
            loss.backward()
            opt.step()
    def steps(self, opt, crit, n):
        it = iter(self.train_loader)
        for k in range(n):
            x, y = next(it)
            x = x.cuda()  # expect: pin-without-non-blocking
            y = y.cuda()
            opt.zero_grad()
            loss = crit(self.net(x), y)
            loss.backward()
            opt.step()

def loaders(root):
    sets = {x: Pets(os.path.join(root, x)) for x in ["train", "val"]}
    return {x: data.DataLoader(sets[x], batch_size=4, num_workers=4) for x in ["train", "val"]}  # expect: train-without-shuffle

def arr(folder):
    df = pd.read_csv("x.csv")
    df["img"] = df["path"].apply(lambda p: np.array(Image.open(p)))  # expect: dataset-in-memory
    with ThreadPoolExecutor(8) as ex:
        imgs = list(ex.map(cv2.imread, glob.glob(folder + "/*.png")))  # expect: dataset-in-memory
    allx = np.empty((0, 64, 64, 3))
    for f in os.listdir(folder):
        im = cv2.imread(os.path.join(folder, f))
        allx = np.concatenate([allx, im[None]])  # expect: dataset-in-memory
    xs = []
    for root, dirs, files in os.walk(folder):
        for f in files:
            if f.endswith(".png"):
                xs += [cv2.imread(os.path.join(root, f))]  # expect: dataset-in-memory
    ys = []
    for i in range(20000):
        ys.append(cv2.imread(f"frames/{i:05d}.png"))  # expect: dataset-in-memory
    return imgs, xs

def get_tf(train):
    return tf.Compose([tf.RandomCrop(32), tf.ToTensor()])

class P(data.Dataset):
    def __init__(self, files):
        self.files = files
    def __len__(self):
        return len(self.files)
    def __getitem__(self, i):
        t = get_tf(True)  # expect: transform-per-item
        return t(Image.open(self.files[i]))

class Q(data.Dataset):
    def __init__(self, files):
        self.files = files
        self.tf = get_tf(True)
    def __len__(self):
        return len(self.files)
    def __getitem__(self, i):
        return self.tf(Image.open(self.files[i]))

def make(ds, bs):
    return data.DataLoader(ds, batch_size=bs, shuffle=True)

def go(ds, net, opt, crit):
    for epoch in range(3):
        dl = make(ds, 32)  # expect: loader-replaced
        for x, y in dl:
            opt.zero_grad()
            loss = crit(net(x), y)
            loss.backward()
            opt.step()

def halve(ds, net, opt, crit):
    bs = 64
    for epoch in range(3):
        dl = make(ds, bs)
        for x, y in dl:
            opt.zero_grad()
            loss = crit(net(x), y)
            loss.backward()
            opt.step()
        bs //= 2
