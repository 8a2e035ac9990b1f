"""Report of runs as a page: data gathering, charts, the page. No torch."""

from ._run_report import RunReport, default_page, write_page, write_run_page

__all__ = ["RunReport", "default_page", "write_page", "write_run_page"]
