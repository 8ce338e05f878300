// Tables, progress and server-sent events.
#include <gtest/gtest.h>

#include "tools/progress.h"
#include "tools/sse.h"
#include "tools/table.h"

namespace hutch::tools {
namespace {

TEST(Tables, AlignsColumnsByCharacters) {
  Table table({{"NAME"}, {"SIZE", Align::kRight}, {"NOTE"}});
  table.Add({"é", "1", "x"});
  table.Add({"long-name", "1000"});
  EXPECT_EQ(table.Render(Colours::kOff),
            "NAME       SIZE  NOTE\n"
            "é             1  x\n"
            "long-name  1000\n");
}

TEST(Tables, ColoursDoNotShiftColumns) {
  Table table({{"A"}, {"B"}});
  table.Add({{"x", Colour::kRed}, "y"});
  const std::string text = table.Render(Colours::kOn);
  EXPECT_NE(text.find("\x1b[31mx\x1b[0m  y\n"), std::string::npos);
}

TEST(Tables, ForeignTextCannotSteerTheTerminal) {
  EXPECT_EQ(Printable("a\x1b[2Jb\r\n\x7f"), "a?[2Jb???");
  EXPECT_EQ(Printable("\xc2\x9b"
                      "2J é"),
            "?2J é");
}

TEST(Colours, AreOffWithoutATerminalOrWithNoColor) {
  EXPECT_EQ(ColoursFor(-1), Colours::kOff);
  EXPECT_EQ(Paint("x", Colour::kRed, Colours::kOff), "x");
}

TEST(ProgressLines, PlainStyleSaysEachSubjectOnce) {
  Progress progress(ProgressStyle::kPlain, Colours::kOff);
  EXPECT_EQ(progress.Take({{"stage", "copy"}, {"subject", "a"}, {"done", 1u}, {"total", 2u}}),
            "copy: a\n");
  EXPECT_EQ(progress.Take({{"stage", "copy"}, {"subject", "a"}, {"done", 2u}, {"total", 2u}}), "");
  EXPECT_EQ(progress.Take({{"stage", "unpack"}}), "unpack\n");
  EXPECT_EQ(progress.Finish(), "");
}

TEST(ProgressLines, LiveStyleKeepsOneLineAStage) {
  Progress progress(ProgressStyle::kLive, Colours::kOff);
  EXPECT_EQ(progress.Take({{"stage", "copy"}, {"done", 1u}, {"total", 2u}}),
            "copy [==========          ] 50 %");
  EXPECT_EQ(progress.Take({{"stage", "copy"}, {"done", 2u}, {"total", 2u}}),
            "\r\x1b[Kcopy [====================] 100 %");
  EXPECT_EQ(progress.Take({{"stage", "unpack"}, {"subject", std::string(100, 'x')}}),
            "\nunpack " + std::string(37, 'x') + "...");
  EXPECT_EQ(progress.Finish(), "\n");
}

TEST(ProgressLines, LiveStyleKeepsALineForEachLayer) {
  Progress progress(ProgressStyle::kLive, Colours::kOff);
  const auto report = [&](const char* stage, const char* subject, unsigned done) {
    return progress.Take({{"stage", stage}, {"subject", subject}, {"done", done}, {"total", 2u}});
  };
  EXPECT_EQ(report("download", "a", 0), "download a [                    ] 0 %");
  EXPECT_EQ(report("download", "b", 1), "\ndownload b [==========          ] 50 %");
  EXPECT_EQ(report("download", "a", 2),
            "\x1b[1A\r\x1b[Kdownload a [====================] 100 %\x1b[1B");
  EXPECT_EQ(report("unpack", "b", 2), "\r\x1b[Kunpack b [====================] 100 %");
  EXPECT_EQ(progress.Finish(), "\n");
}

TEST(ProgressLines, PlainStyleSaysInterleavedSubjectsOnce) {
  Progress progress(ProgressStyle::kPlain, Colours::kOff);
  EXPECT_EQ(progress.Take({{"stage", "download"}, {"subject", "a"}}), "download: a\n");
  EXPECT_EQ(progress.Take({{"stage", "download"}, {"subject", "b"}}), "download: b\n");
  EXPECT_EQ(progress.Take({{"stage", "download"}, {"subject", "a"}}), "");
}

TEST(Sse, AnyCutGivesTheSameEvents) {
  const std::string stream =
      ": hello\r\nevent: progress\r\ndata: {\"a\":\r\ndata: 1}\r\n\r\nevent: result\ndata:x\n\n"
      "event: empty\n\ndata: last\n";
  for (size_t size = 1; size <= stream.size(); ++size) {
    SseReader reader;
    std::vector<SseEvent> events;
    for (size_t at = 0; at < stream.size(); at += size) {
      const auto some = reader.Feed(std::string_view(stream).substr(at, size));
      ASSERT_TRUE(some);
      events.insert(events.end(), some->begin(), some->end());
    }
    ASSERT_EQ(events.size(), 2u);
    EXPECT_EQ(events[0].name, "progress");
    EXPECT_EQ(events[0].data, "{\"a\":\n1}");
    EXPECT_EQ(events[1].name, "result");
    EXPECT_EQ(events[1].data, "x");
  }
}

TEST(Sse, AnEndlessEventIsRefused) {
  SseReader reader;
  const std::string piece(1 << 20, 'x');
  for (int i = 0; i < 16; ++i) ASSERT_TRUE(reader.Feed(piece));
  EXPECT_EQ(reader.Feed(piece).error().code, Code::kTooLarge);
}

}  // namespace
}  // namespace hutch::tools
