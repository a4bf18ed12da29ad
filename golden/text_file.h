// Texts that a command line names: lists of cases, rules, known failures. Unlike tensors they may
// come through a pipe, which must not keep the reader for ever.

#ifndef GOLDEN_TEXT_FILE_H_
#define GOLDEN_TEXT_FILE_H_

#include <chrono>
#include <cstddef>
#include <functional>
#include <string>

namespace kvcheck {

// Nobody has opened a pipe for writing that long: nobody will.
inline constexpr std::chrono::milliseconds kPipeWithoutWriter{3'000};

// All of it. on_wait: called while a pipe's writer has nothing to say, at least every 50 ms; what
// it throws passes through. Errors: kUnreadableFile with the reason: missing, a folder, longer than
// most_bytes, a pipe without a writer.
std::string ReadWholeText(const std::string& path, size_t most_bytes,
                          const std::function<void()>& on_wait = {});

}  // namespace kvcheck

#endif  // GOLDEN_TEXT_FILE_H_
