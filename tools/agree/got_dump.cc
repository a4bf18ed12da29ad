// The texts by which dumps are named on a command line.

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <filesystem>
#include <system_error>

#include "reference/spec/error.h"
#include "tools/agree/compare_dumps.h"
#include "tools/agree/storage_choice.h"
#include "tools/measure/format_choice.h"

namespace kvcheck {
namespace {

double BitsOf(const std::string& text, const std::string& whole) {
  double bits = 0;
  const char* end = text.data() + text.size();
  const auto read = std::from_chars(text.data(), end, bits);
  if (read.ec == std::errc() && read.ptr == end && bits > 0 && std::isfinite(bits)) return bits;
  throw Error(
      ErrorCode::kParse,
      fmt::format("'{}' is no number of bits: LABEL@BITS=FILE is asked for, as fp8@8=FILE", text),
      whole);
}

}  // namespace

GotDump ParseGotDump(const std::string& text, int64_t head_dim) {
  GotDump got;
  got.path = text;
  std::error_code ignored;
  const size_t equals = text.find('=');
  if (equals == std::string::npos || std::filesystem::exists(text, ignored)) return got;
  got.cache = text.substr(0, equals);
  got.path = text.substr(equals + 1);
  if (got.path.empty() || got.cache.empty()) {
    throw Error(ErrorCode::kParse, "CACHE=FILE is asked for, as q8_0=mine.kld", text);
  }
  const size_t at = got.cache.find('@');
  if (at != std::string::npos) {
    got.bits = BitsOf(got.cache.substr(at + 1), text);
    got.cache.resize(at);
    return got;
  }
  try {
    const auto storages = ChooseStorages({got.cache}, {}, PathFault::kNone, head_dim);
    if (storages.size() != 1) {
      throw Error(ErrorCode::kParse, "a pattern of formats: name the one that was stored");
    }
    got.bits = (BitsPerElement(storages.front().k, head_dim) +
                BitsPerElement(storages.front().v, head_dim)) /
               2;
  } catch (const Error& error) {
    throw Error(error.code(),
                fmt::format("{}: {}; a cache that kvcheck has no format of is named with its bits, "
                            "as fp8@8=FILE",
                            error.context(), error.message()),
                text);
  }
  return got;
}

}  // namespace kvcheck
