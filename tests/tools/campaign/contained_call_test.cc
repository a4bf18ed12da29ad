#include "tools/campaign/contained_call.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <string>

#include "tests/tools/process/child_time.h"

namespace kvcheck {
namespace {

Message Bytes(std::string_view text) {
  const auto* data = reinterpret_cast<const std::byte*>(text.data());
  return Message(data, data + text.size());
}

ContainedCall::Function Body(ChildTime* time) {
  return [time](const Message& message, ItemMark& mark) {
    const std::string text(reinterpret_cast<const char*>(message.data()), message.size());
    mark.StartStep(7);
    if (text == "crash") abort();
    if (text == "hang") {
      time->Hang();
      volatile unsigned turns = 0;
      while (true) turns = turns + 1;
    }
    return Bytes(text + "!");
  };
}

TEST(ContainedCall, GoesOnAfterACrashAndAfterAHang) {
  ChildLimits limits;
  limits.since_progress = std::chrono::hours(1);
  ChildTime time;
  time.Count();
  ContainedCall call(limits, [&time] { return Body(&time); });
  EXPECT_EQ(call(Bytes("a")).message, Bytes("a!"));
  const ContainedCall::Answer crash = call(Bytes("crash"));
  EXPECT_EQ(crash.outcome, Outcome::kCrashed);
  EXPECT_EQ(crash.step, 7);
  EXPECT_TRUE(crash.reason.starts_with("crashed (signal 6")) << crash.reason;
  EXPECT_EQ(call(Bytes("b")).message, Bytes("b!"));
  const ContainedCall::Answer hang = call(Bytes("hang"));
  EXPECT_EQ(hang.outcome, Outcome::kTimedOut);
  EXPECT_EQ(call(Bytes("c")).message, Bytes("c!"));
  EXPECT_FALSE(call(Bytes("d")).IsLost());
}

}  // namespace
}  // namespace kvcheck
