from pathlib import Path

import librosa
import torchaudio
from torch.utils.data import Dataset


class WrongRecordings(Dataset):
    def __init__(self, root):
        self.paths = sorted(Path(root).rglob("*.flac"))
        self.audio = {path: librosa.load(path, sr=16000)[0] for path in self.paths}  # expect: dataset-in-memory

    def __getitem__(self, i):
        return self.audio[self.paths[i]][:16000]


class WrongTransform(Dataset):
    def __init__(self, paths):
        self.paths = paths

    def __getitem__(self, i):
        wave, _ = torchaudio.load(self.paths[i])
        mel = torchaudio.transforms.MelSpectrogram(16000, n_mels=64)  # expect: transform-per-item
        return mel(wave[:, :16000])


class RightRecordings(Dataset):
    def __init__(self, paths):
        self.paths = paths
        self.durations = [librosa.get_duration(path=path) for path in paths]
        self.mel = torchaudio.transforms.MelSpectrogram(16000, n_mels=64)

    def __getitem__(self, i):
        wave, rate = torchaudio.load(self.paths[i])
        wave = torchaudio.transforms.Resample(rate, 16000)(wave)
        return self.mel(wave[:, :16000])
