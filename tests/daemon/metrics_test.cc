#include "daemon/metrics.h"

#include "daemon/limits.h"
#include "daemon/sandbox_stats.h"
#include "tests/daemon/daemon_fixture.h"

namespace hutch::daemon {
namespace {

TEST(MetricsText, IsTheFormatOfPrometheus) {
  MetricsText text;
  text.Counters("a_total", "kind", "Of a.", {{"x", 1}, {"quote \" back \\ line\n", 2}});
  text.Gauge("b", "Of b.", 0.5);
  EXPECT_EQ(text.Take(),
            "# HELP a_total Of a.\n# TYPE a_total counter\n"
            "a_total{kind=\"quote \\\" back \\\\ line\\n\"} 2\na_total{kind=\"x\"} 1\n"
            "# HELP b Of b.\n# TYPE b gauge\nb 0.5\n");
}

TEST(Histogram, BucketsAreCumulative) {
  Histogram histogram;
  for (const double seconds : {0.0001, 0.0005, 0.3, 1000.0}) histogram.Add(seconds);
  MetricsText text;
  text.Family("h", "histogram", "Of h.");
  text.Add({{"phase", "p"}}, histogram);
  const std::string all = text.Take();
  for (const char* line :
       {"h_bucket{phase=\"p\",le=\"0.0005\"} 2\n", "h_bucket{phase=\"p\",le=\"0.25\"} 2\n",
        "h_bucket{phase=\"p\",le=\"0.5\"} 3\n", "h_bucket{phase=\"p\",le=\"60\"} 3\n",
        "h_bucket{phase=\"p\",le=\"+Inf\"} 4\n", "h_count{phase=\"p\"} 4\n"})
    EXPECT_NE(all.find(line), std::string::npos) << line << all;
}

class MetricsRequestTest : public DaemonTest {
 protected:
  // 0 for a sample that is not there.
  double Value(const std::string& sample) {
    const std::string text = Call("GET", "/v1/metrics")->reply->body;
    const size_t at = text.find("\n" + sample + " ");
    return at == std::string::npos ? 0 : std::stod(text.substr(at + sample.size() + 2));
  }
};

TEST_F(MetricsRequestTest, CountersMoveByWhatWasDone) {
  StartSandboxes();
  const std::string id = Create();
  EXPECT_EQ(Value("hutch_sandboxes{state=\"running\"}"), 1);
  Create();
  Call("DELETE", "/v1/sandboxes/" + id);
  runtime_.save_error = Error{.code = Code::kNoSpace, .what = "the disk is full"};
  Call("POST", "/v1/sandboxes", R"({"image":"busybox"})");
  EXPECT_EQ(Value("hutch_sandbox_creations_total{outcome=\"running\"}"), 2);
  EXPECT_EQ(Value("hutch_sandbox_creations_total{outcome=\"failed\"}"), 1);
  EXPECT_EQ(Value("hutch_sandbox_ends_total{cause=\"deleted\"}"), 1);
  EXPECT_EQ(Value("hutch_sandbox_create_seconds_count"), 2);
  EXPECT_EQ(Value("hutch_sandbox_create_phase_seconds_count{phase=\"mounts\"}"), 2);
  EXPECT_EQ(Value("hutch_memory_granted_bytes"), 536870912);
}

TEST_F(MetricsRequestTest, AnswersAreCountedByRouteAndStatus) {
  Call("GET", "/v1/health");
  Call("GET", "/v1/health");
  Call("GET", "/v1/sandboxes/a");
  Call("GET", "/v1/sandboxes/b");
  Call("GET", "/v1/sandboxes?wrong=1");
  Call("GET", "/nothing/of/ours");
  const auto sample = [](const char* route, int status) {
    return "hutch_http_requests_total{method=\"GET\",route=\"" + std::string(route) +
           "\",status=\"" + std::to_string(status) + "\"}";
  };
  EXPECT_EQ(Value(sample("/v1/health", 200)), 2);
  EXPECT_EQ(Value(sample("/v1/sandboxes/{id}", 404)), 2);
  EXPECT_EQ(Value(sample("/v1/sandboxes", 400)), 1);
  EXPECT_EQ(Value("hutch_http_requests_total{method=\"\",route=\"\",status=\"404\"}"), 1);
}

TEST_F(MetricsRequestTest, DenialsMakeNoLabelsOfTheirOwn) {
  SandboxEntry entry;
  entry.facts.id = "sb-x";
  watching_.NetworkDenied(entry, {{"protocol", "dns"}, {"times", 3}});
  for (const char* made_up : {"a", "b", "c"})
    watching_.NetworkDenied(entry, {{"protocol", made_up}, {"times", 1}});
  EXPECT_EQ(Value("hutch_network_denials_total{protocol=\"dns\"}"), 3);
  EXPECT_EQ(Value("hutch_network_denials_total{protocol=\"other\"}"), 3);
  EXPECT_EQ(watching_.metrics().denials.size(), 2u);
}

TEST(CpuWindow, ASecondLookIsOfTheTimeBetween) {
  const SteadyTime born{std::chrono::seconds(100)};
  const auto at = [&](int ms) { return born + Milliseconds(ms); };
  CpuWindow window;
  const CpuWindow::Share first = window.Look(1'000'000, at(2000), born);
  EXPECT_DOUBLE_EQ(first.percent, 50);
  EXPECT_DOUBLE_EQ(first.over_ms, 2000);
  const CpuWindow::Share second = window.Look(3'000'000, at(3000), born);
  EXPECT_DOUBLE_EQ(second.percent, 200);
  EXPECT_DOUBLE_EQ(second.over_ms, 1000);
}

TEST(CpuWindow, ManyWhoLookDoNotShortenEachOthersTime) {
  const SteadyTime born{std::chrono::seconds(100)};
  CpuWindow window;
  window.Look(0, born + Milliseconds(1000), born);
  double least = 1e9;
  for (int ms = 2000; ms < 5000; ms += 10)
    least = std::min(least, window.Look(0, born + Milliseconds(ms), born).over_ms);
  EXPECT_GE(least, static_cast<double>(kMinStatsWindow.count()));
}

TEST_F(MetricsRequestTest, StatsAreOfRunningSandboxesOnly) {
  StartSandboxes();
  EXPECT_EQ(Call("GET", "/v1/sandboxes/none/stats")->code(), "not_found");
  const std::string path = "/v1/sandboxes/" + Create();
  const oci::Json stats = Call("GET", path + "/stats")->json();
  EXPECT_EQ(stats["memory"]["limit_bytes"], 536870912);
  EXPECT_EQ(stats["cpu"]["percent"], nullptr);  // no cgroup here
  EXPECT_EQ(Call("GET", path + "/stats?stream=maybe")->code(), "invalid_argument");
  const auto stream = Begin("GET", path + "/stats?stream=true");
  EXPECT_EQ(stream->events.at(0).first, "stats");
  Call("DELETE", path);
  RunUntil([&] { return stream->ended; });
  EXPECT_EQ(stream->events.back().first, "end");
  EXPECT_EQ(Call("GET", path + "/stats")->code(), "bad_state");
}

}  // namespace
}  // namespace hutch::daemon
