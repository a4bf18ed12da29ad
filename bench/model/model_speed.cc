// Tokens a second of the fast model over the fast caches, teacher-forced as `kvcheck agree` feeds
// it, without anybody who judges: prefill in chunks of 128, the last eighth token by token.
//
//   model_speed MODEL TEXT FORMAT CONTEXT THREADS
//
// Prints one line of JSON: tokens, wall seconds and processor seconds (of all threads) of both.

#include <fmt/format.h>
#include <sys/resource.h>

#include <chrono>
#include <cstdlib>
#include <exception>
#include <string>
#include <vector>

#include "golden/decoder_file.h"
#include "golden/text_file.h"
#include "reference/spec/error.h"
#include "tools/agree/path.h"
#include "tools/agree/storage_choice.h"

namespace kvcheck {
namespace {

constexpr int64_t kChunk = 128;

double ProcessorSeconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

struct Spent {
  int64_t tokens = 0;
  double wall = 0, processor = 0;
};

std::string Json(const char* name, const Spent& spent) {
  return fmt::format(R"("{}": {{"tokens": {}, "wall": {:.6f}, "processor": {:.6f}}})", name,
                     spent.tokens, spent.wall, spent.processor);
}

void Run(const std::vector<std::string>& arguments) {
  const DecoderFile model = ReadDecoderFile(arguments[0]);
  std::vector<int64_t> tokens = {model.config.bos};
  const auto context = static_cast<size_t>(std::stoll(arguments[3]));
  for (const char byte : ReadWholeText(arguments[1], size_t{1} << 30)) {
    if (tokens.size() < context) tokens.push_back(static_cast<unsigned char>(byte));
  }
  const PathStorage storage =
      ChooseStorages({arguments[2]}, {"ring"}, PathFault::kNone, model.config.head_dim).front();
  optimized::Decoder decoder(model.config, model.weights, std::stoi(arguments[4]));
  const std::vector<std::span<const int64_t>> rows = {tokens};
  PathRun run(&decoder, storage, rows);
  const std::vector<PathStep> steps = WithoutDrafts(TeacherForcedSteps(run.columns(), kChunk));
  Spent prefill, decode;
  auto wall = std::chrono::steady_clock::now();
  double processor = ProcessorSeconds();
  run.Run(steps, nullptr, [&](std::span<const int64_t>, int64_t columns, std::span<const float>) {
    const auto wall_now = std::chrono::steady_clock::now();
    const double processor_now = ProcessorSeconds();
    Spent& spent = columns > 1 ? prefill : decode;
    spent.tokens += columns;
    spent.wall += std::chrono::duration<double>(wall_now - wall).count();
    spent.processor += processor_now - processor;
    wall = wall_now, processor = processor_now;
  });
  fmt::print("{{{}, {}}}\n", Json("prefill", prefill), Json("decode", decode));
}

}  // namespace
}  // namespace kvcheck

int main(int argc, char** argv) {
  if (argc != 6) {
    fmt::print(stderr, "usage: model_speed MODEL TEXT FORMAT CONTEXT THREADS\n");
    return 2;
  }
  try {
    kvcheck::Run({argv + 1, argv + argc});
  } catch (const std::exception& error) {
    fmt::print(stderr, "model_speed: {}\n", error.what());
    return 2;
  }
  return 0;
}
