"""`evertable test` runs these: rows are pushed, time stands still, nothing sleeps."""

from evertable.testing import Fault, assert_same_as_batch


def test_a_window_closes_when_the_watermark_has_passed_it(pipeline):
    t = pipeline.table("shown_per_brand")
    pipeline.static("adverts", [{"ad": 1, "brand": "acme"}])
    pipeline.push("impressions_raw", [{"timestamp": "12:00:03", "value": 1}])
    pipeline.run_until_idle()
    assert t.rows() == []  # more of this window might come
    pipeline.push("impressions_raw", [{"timestamp": "12:00:15", "value": 1}])
    pipeline.run_until_idle()
    assert t.watermark == "12:00:10"
    assert t.rows() == [
        {"w_start": "12:00:00", "w_end": "12:00:10", "brand": "acme", "shown": 1},
    ]


def test_a_late_row_is_not_counted(pipeline):
    t = pipeline.table("shown_per_brand")
    pipeline.static("adverts", [{"ad": 1, "brand": "acme"}])
    pipeline.push("impressions_raw", [{"timestamp": "12:00:40", "value": 1}])
    pipeline.run_until_idle()
    pipeline.push("impressions_raw", [{"timestamp": "12:00:03", "value": 1}])
    pipeline.run_until_idle()
    assert t.dropped_by_watermark == 1


def test_a_crash_loses_nothing(pipeline):
    t = pipeline.table("clicks_per_brand")
    pipeline.push("clicks_raw", [{"timestamp": "12:00:01", "value": v} for v in range(20)])
    with pipeline.crash(Fault.AFTER_SINK_COMMIT):
        pipeline.run_until_idle()
    pipeline.restart()
    pipeline.push("clicks_raw", [{"timestamp": "12:00:02", "value": 3}])
    assert_same_as_batch(t)
