// The figures as text, JSON and SVG.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "oci/json.h"
#include "tools/bench/copies.h"
#include "tools/bench/measure.h"
#include "tools/table.h"

namespace hutch::tools {

struct Surroundings {
  std::string kernel, cpu, date, rootfs;
  unsigned cpus = 0;
  double load = 0;        // average of the last minute, at the start
  std::string hutch;      // "0.1.0, pools on (8 blanks ready)", or why there is none
  std::string pools_off;  // of the second daemon; empty without one
  std::optional<DaemonMemory> memory = {};  // hutchd's, where copies were measured
};

// "0.1.0, pools on (4 of 4 blanks ready)" from GET /v1/info.
std::string DescribeDaemon(const oci::Json& info);

std::string RenderText(const Surroundings& host, const Plan& plan,
                       const std::vector<CaseResult>& results, Colours colours);
oci::Json RenderJson(const Surroundings& host, const Plan& plan,
                     const std::vector<CaseResult>& results);
std::string RenderSvg(const Surroundings& host, const std::vector<CaseResult>& results);

}  // namespace hutch::tools
