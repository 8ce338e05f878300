#include "base/log.h"

#include <gtest/gtest.h>

namespace hutch {
namespace {

TEST(Log, AValueCannotStartALineOfItsOwn) {
  ConfigureLog(LogFormat::kText, LogLevel::kInfo);
  testing::internal::CaptureStderr();
  Log(LogLevel::kInfo, "started", {{"name", "a\nerror forged=\"yes\""}});
  const std::string text = testing::internal::GetCapturedStderr();
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 1);
  EXPECT_EQ(text.find(" forged=\"yes\""), std::string::npos);
}

TEST(Log, BelowTheMinimumNothingIsWritten) {
  ConfigureLog(LogFormat::kText, LogLevel::kWarning);
  testing::internal::CaptureStderr();
  Log(LogLevel::kInfo, "quiet");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

TEST(Log, JsonIsOneObjectALine) {
  ConfigureLog(LogFormat::kJson, LogLevel::kInfo);
  testing::internal::CaptureStderr();
  Log(LogLevel::kWarning, "a \"quoted\" message", {{"path", "C:\\x\x01"}});
  const std::string text = testing::internal::GetCapturedStderr();
  EXPECT_NE(text.find("\"message\":\"a \\\"quoted\\\" message\""), std::string::npos) << text;
  EXPECT_NE(text.find("\\\\x\\u0001"), std::string::npos) << text;
  EXPECT_EQ(text.back(), '\n');
}

}  // namespace
}  // namespace hutch
