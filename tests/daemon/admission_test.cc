#include "daemon/admission.h"

#include <gtest/gtest.h>

namespace hutch::daemon {
namespace {

constexpr Promise kHost{.memory_bytes = 8ull << 30,
                        .cpu_millis = 4000,
                        .pids = 1000,
                        .disk_bytes = 8ull << 30,
                        .id_ranges = 3};
constexpr Overcommit kTwice{.memory = 2, .cpus = 2, .pids = 2, .disk = 2};

struct Case {
  const char* name;
  Promise asked, promised;
  Code code;
  const char* field;
  const char* says;
};
const Case kRefused[] = {
    {"more memory than the host has",
     {.memory_bytes = 9ull << 30},
     {},
     Code::kLimit,
     "limits.memory_bytes",
     "1.0 GiB are missing"},
    {"more CPUs than the host has",
     {.cpu_millis = 4500},
     {},
     Code::kLimit,
     "limits.cpus",
     "0.5 are missing"},
    {"more processes than are ever given out",
     {.pids = 2001},
     {},
     Code::kLimit,
     "limits.pids",
     "1 are missing"},
    {"more files than are ever given out",
     {.disk_bytes = 17ull << 30},
     {},
     Code::kLimit,
     "limits.disk_bytes",
     "1.0 GiB are missing"},
    {"more memory than is left",
     {.memory_bytes = 2ull << 30},
     {.memory_bytes = 15ull << 30},
     Code::kUnavailable,
     "limits.memory_bytes",
     "1.0 GiB left"},
    {"more CPUs than are left",
     {.cpu_millis = 1000},
     {.cpu_millis = 7500},
     Code::kUnavailable,
     "limits.cpus",
     "0.5 left"},
    {"more processes than are left",
     {.pids = 5},
     {.pids = 1996},
     Code::kUnavailable,
     "limits.pids",
     "1 are missing"},
    {"more files than are left",
     {.disk_bytes = 2ull << 30},
     {.disk_bytes = 15ull << 30},
     Code::kUnavailable,
     "limits.disk_bytes",
     "1.0 GiB are missing"},
    {"no range of ids left", {.id_ranges = 1}, {.id_ranges = 3}, Code::kUnavailable, "", "0 left"},
    {"more promised than there is after a change of settings",
     {.pids = 1},
     {.pids = 5000},
     Code::kUnavailable,
     "limits.pids",
     "0 left"},
};

TEST(Admission, WhatDoesNotFitIsRefusedWithWhatIsMissing) {
  for (const Case& row : kRefused) {
    const Status status = CheckFits(row.asked, row.promised, kHost, kTwice);
    ASSERT_FALSE(status.has_value()) << row.name;
    EXPECT_EQ(status.error().code, row.code) << row.name;
    EXPECT_EQ(status.error().field, row.field) << row.name;
    EXPECT_NE(status.error().what.find(row.says), std::string::npos) << status.error().what;
  }
}

TEST(Admission, TheLastThatFitsFits) {
  const Promise half{.memory_bytes = 8ull << 30,
                     .cpu_millis = 4000,
                     .pids = 1000,
                     .disk_bytes = 8ull << 30,
                     .id_ranges = 1};
  EXPECT_TRUE(CheckFits(half, half, kHost, kTwice).has_value());
  Promise full = half;
  full += half;
  EXPECT_FALSE(CheckFits({.pids = 1}, full, kHost, kTwice).has_value());
  full -= half;
  EXPECT_TRUE(CheckFits(half, full, kHost, kTwice).has_value());
}

TEST(Admission, WhatIsNotKnownOfTheHostIsNotCounted) {
  EXPECT_TRUE(CheckFits({.pids = 1u << 30}, {}, {}, kTwice).has_value());
}

TEST(Admission, NumbersBeyondAllBoundsDoNotWrapAround) {
  constexpr uint64_t kHuge = uint64_t{1} << 62;
  EXPECT_FALSE(CheckFits({.pids = kHuge}, {.pids = kHuge}, kHost, kTwice).has_value());
  EXPECT_TRUE(
      CheckFits({.pids = kHuge}, {.pids = kHuge}, {.pids = kHuge}, {.pids = 1e6}).has_value());
}

TEST(Admission, FilesAreInMemory) {
  SandboxFields fields;
  fields.memory_bytes = 100;
  fields.disk_bytes = 1000;
  fields.cpus = 0.25;
  const Promise promise = PromiseOf(fields);
  EXPECT_EQ(promise.disk_bytes, 100u);
  EXPECT_EQ(promise.cpu_millis, 250u);
  EXPECT_EQ(promise.id_ranges, 1u);
}

constexpr char kPressure[] =
    "some avg10=61.50 avg60=1.00 avg300=0.00 total=1\nfull avg10=0.00 avg60=0.00 avg300=0.00 "
    "total=1\n";
constexpr char kMeminfo[] = "MemTotal:  2000 kB\nMemFree: 1 kB\nMemAvailable:   1000 kB\n";

TEST(Admission, AHostUnderPressureMakesNone) {
  Config config;
  config.memory_reserve_bytes = 0;
  Strain strain = ParseStrain(kPressure, "MemTotal: 2000 kB\nMemAvailable: 199 kB\n");
  const Status refused = CheckStrain(strain, config);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, Code::kUnavailable);
  EXPECT_NE(refused.error().what.find("61.5 %"), std::string::npos) << refused.error().what;
  config.memory_pressure_percent = 61.5;
  EXPECT_TRUE(CheckStrain(strain, config).has_value());
  config.memory_pressure_percent = 0;
  strain.memory_some_avg10 = 100;
  EXPECT_TRUE(CheckStrain(strain, config).has_value());
}

TEST(Admission, PressureWithMemoryToSpareIsASandboxesOwn) {
  Config config;
  config.memory_reserve_bytes = 0;
  Strain strain = ParseStrain(kPressure, kMeminfo);
  strain.memory_some_avg10 = 100;
  EXPECT_TRUE(CheckStrain(strain, config).has_value());
  strain.available_bytes.reset();  // then nothing speaks against it
  EXPECT_FALSE(CheckStrain(strain, config).has_value());
}

TEST(Admission, TheReserveIsHeldBack) {
  Config config;
  config.memory_pressure_percent = 0;
  config.memory_reserve_bytes = 1000 * 1024;
  const Strain strain = ParseStrain(kPressure, kMeminfo);
  EXPECT_TRUE(CheckStrain(strain, config).has_value());
  ++config.memory_reserve_bytes;
  EXPECT_EQ(CheckStrain(strain, config).error().code, Code::kUnavailable);
}

TEST(Admission, WhatTheKernelDoesNotTellRefusesNothing) {
  for (const char* text : {"", "some", "MemAvailable:\n", "MemAvailable: x kB\n"}) {
    const Strain strain = ParseStrain(text, text);
    EXPECT_FALSE(strain.memory_some_avg10);
    EXPECT_FALSE(strain.available_bytes) << text;
    EXPECT_TRUE(CheckStrain(strain, Config()).has_value());
  }
}

}  // namespace
}  // namespace hutch::daemon
