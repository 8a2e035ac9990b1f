"""Rules for what shells and systems print in other languages than English.

Python's own errors are in English everywhere; shells translate the end of a program, and Windows its error messages.
"""

from __future__ import annotations

from collections.abc import Iterator

from .._kinds import FailureKind
from ._rule import Rule, rule

# In front of such a word: nothing, a progress bar, or the number of a process.
_BEFORE = r"(?:^|[\s\d\]%|])"
_ENDS: dict[FailureKind, tuple[str, ...]] = {
    FailureKind.OOM_KILL: (
        "Getötet",
        "Processus arrêté",
        "Terminado (killed)",
        "Ucciso",
        "Morto",
        "Убито",
        "Вбито",
        "Unicestwiony",
        "已杀死",
        "已砍掉",
        "強制終了",
        "죽었음",
    ),
    FailureKind.CRASH: (
        "Speicherzugriffsfehler",
        "Erreur de segmentation",
        "Violación de segmento",
        "Errore di segmentazione",
        "Falha de segmentação",
        "Ошибка сегментирования",
        "Naruszenie ochrony pamięci",
        "段错误",
        "段錯誤",
    ),
}
_PHRASES: dict[FailureKind, tuple[str, ...]] = {
    FailureKind.COMMIT_LIMIT: (
        "Auslagerungsdatei ist zu klein",
        "fichier de pagination est insuffisant",
        "archivo de paginación es demasiado pequeño",
        "arquivo de paginação é muito pequeno",
        "file di paging è troppo piccolo",
        "Файл подкачки слишком мал",
        "Plik stronicowania jest za mały",
        "页面文件太小",
        "分頁檔太小",
        "ページング ファイルが小さすぎる",
        "페이징 파일이 너무 작",
    ),
    FailureKind.ENOMEM: (
        "Nicht genügend Hauptspeicher verfügbar",
        "Kann keinen Speicher mehr allozieren",
        "Impossible d'allouer de la mémoire",
        "Ne peut allouer de la mémoire",
        "No se pudo asignar memoria",
        "Impossibile allocare memoria",
        "Não foi possível alocar memória",
        "Невозможно выделить память",
        "Не удалось выделить память",
        "无法分配内存",
        "無法配置記憶體",
        "メモリを確保できません",
        "메모리를 할당할 수 없습니다",
    ),
    FailureKind.DISK_FULL: (
        "kein Speicherplatz mehr verfügbar",
        "Aucun espace disponible sur le périphérique",
        "No queda espacio en el dispositivo",
        "Spazio esaurito sul device",
        "Não há espaço disponível no dispositivo",
        "На устройстве не осталось свободного места",
        "Brak miejsca na urządzeniu",
        "设备上没有空间",
        "裝置上沒有剩餘空間",
        "デバイスに空き領域がありません",
        "장치에 남은 공간이 없음",
    ),
}


def _rules() -> Iterator[Rule]:
    for kind, words in _ENDS.items():
        for word in words:
            # Behind it, shells print the command, or that memory was dumped.
            pattern = word.replace("(", r"\(").replace(")", r"\)")
            yield rule(kind, word, rf"{_BEFORE}{pattern}(?:\s*$|\s{{2,}}\S|\s*[(（])")
    for kind, phrases in _PHRASES.items():
        yield from (rule(kind, phrase) for phrase in phrases)


LOCALIZED_RULES = tuple(_rules())
