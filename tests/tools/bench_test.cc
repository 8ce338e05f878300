#include <gtest/gtest.h>

#include "tools/bench/bundle.h"
#include "tools/bench/report.h"
#include "tools/bench/statistics.h"
#include "tools/bench/svg_plot.h"

namespace hutch::tools {
namespace {

TEST(Percentiles, AreLinearBetweenSamples) {
  const std::vector<double> sorted = {1, 2, 3, 4, 5};
  EXPECT_DOUBLE_EQ(Percentile(sorted, 0), 1);
  EXPECT_DOUBLE_EQ(Percentile(sorted, 0.5), 3);
  EXPECT_DOUBLE_EQ(Percentile(sorted, 0.95), 4.8);
  EXPECT_DOUBLE_EQ(Percentile(sorted, 1), 5);
  EXPECT_DOUBLE_EQ(Percentile({7}, 0.99), 7);
  EXPECT_DOUBLE_EQ(Percentile({}, 0.5), 0);
}

TEST(Percentiles, SummarySortsFirst) {
  const Summary s = Summarize({3, 1, 2});
  EXPECT_EQ(s.count, 3u);
  EXPECT_DOUBLE_EQ(s.min, 1);
  EXPECT_DOUBLE_EQ(s.p50, 2);
  EXPECT_DOUBLE_EQ(s.max, 3);
  EXPECT_DOUBLE_EQ(s.mean, 2);
  EXPECT_EQ(Summarize({}).count, 0u);
}

CaseResult Result() {
  CaseResult result;
  result.row = &AllCases()[0];
  result.entries = {{.contestant = "hutch", .reason = "", .samples = {1, 1, 1}},
                    {.contestant = "bwrap", .reason = "", .samples = {4, 4, 4}},
                    {.contestant = "crun", .reason = "not usable here: hybrid", .samples = {}},
                    {.contestant = "plain fork+exec", .reason = "", .samples = {0.5}}};
  return result;
}

TEST(Report, RatiosAreToBwrapAndPlain) {
  const std::string text = RenderText({}, {}, {Result()}, Colours::kOff);
  EXPECT_NE(text.find("hutch            1.00  1.00  1.00  1.00  1.00     0.25     2.00\n"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("  crun: not usable here: hybrid\n"), std::string::npos);
}

TEST(Report, CopiesHaveARateAndNoRatios) {
  static const CaseRow row = {"copy-file-in", "a file in", CaseKind::kCopy, {}};
  CaseResult copies;
  copies.row = &row;
  copies.entries = {{.contestant = "hutch", .reason = "", .samples = {2, 2}, .per_second = 512},
                    {.contestant = "podman", .reason = "", .samples = {4}, .per_second = 2.5},
                    {.contestant = "runc", .reason = "copies no files", .samples = {}}};
  Surroundings host;
  host.memory = DaemonMemory{.before_kib = 2048, .after_kib = 3072, .peak_kib = 4096};
  const std::string text = RenderText(host, {}, {copies}, Colours::kOff);
  EXPECT_NE(text.find("hutchd: 2.0 MiB resident before, 3.0 MiB after, 4.0 MiB at most\n"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("ms       min   p50   p95   p99  mean  MB/s\n"
                      "hutch   2.00  2.00  2.00  2.00  2.00   512\n"
                      "podman  4.00  4.00  4.00  4.00  4.00   2.5\n"
                      "  runc: copies no files\n"),
            std::string::npos)
      << text;
  const oci::Json json = RenderJson(host, {}, {copies});
  EXPECT_EQ(json["host"]["hutchd_memory"]["peak_kib"], 4096);
  EXPECT_EQ(json["cases"][0]["contestants"][0]["megabytes_per_second"], 512);
}

TEST(Report, JsonHasEverySample) {
  const oci::Json json = RenderJson({}, {}, {Result()});
  const oci::Json& entries = json["cases"][0]["contestants"];
  EXPECT_EQ(entries[0]["samples_ms"].size(), 3u);
  EXPECT_EQ(entries[2]["reason"], "not usable here: hybrid");
}

TEST(Report, SaysWhetherPoolsAreOn) {
  const oci::Json on = {
      {"version", "1"},
      {"pools", {{"enabled", true}, {"blanks_ready", 3u}, {"blanks_wanted", 4u}}}};
  EXPECT_EQ(DescribeDaemon(on), "1, pools on (3 of 4 blanks ready)");
  EXPECT_EQ(DescribeDaemon({{"version", "1"}, {"pools", {{"enabled", false}}}}), "1, pools off");
  EXPECT_EQ(DescribeDaemon({{"version", "1"}}), "1, says nothing about pools");
}

TEST(Svg, TextIsEscapedAndEmptyPanelsLeftOut) {
  const std::string svg =
      DrawSvg("a<b>&", "", {{"empty", {{"none", {}}}}, {"one", {{"x", {1, 2}}}}});
  EXPECT_NE(svg.find("a&lt;b&gt;&amp;"), std::string::npos);
  EXPECT_EQ(svg.find(">empty<"), std::string::npos);
  EXPECT_NE(svg.find(">one<"), std::string::npos);
  EXPECT_EQ(svg.find("nan"), std::string::npos);
}

TEST(Bundles, AskForTheSameNamespaces) {
  const oci::Json config = PlanBundleConfig("/root/fs", {"/bin/true"});
  EXPECT_EQ(config["linux"]["namespaces"].size(), 7u);
  EXPECT_EQ(config["root"]["path"], "/root/fs");
  EXPECT_EQ(config["process"]["terminal"], false);
  EXPECT_FALSE(config["process"].contains("rlimits"));
  EXPECT_TRUE(config["process"]["capabilities"]["bounding"].is_array());
}

}  // namespace
}  // namespace hutch::tools
