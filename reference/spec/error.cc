#include "reference/spec/error.h"

#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>

namespace kvcheck {

std::string_view Name(ErrorCode code) {
  switch (code) {
    case ErrorCode::kUsage:
      return "usage";
    case ErrorCode::kParse:
      return "malformed text";
    case ErrorCode::kIllegalCase:
      return "illegal case";
    case ErrorCode::kUnreadableFile:
      return "unreadable file";
    case ErrorCode::kMissingData:
      return "missing data";
    case ErrorCode::kUnsupported:
      return "unsupported";
    case ErrorCode::kSelection:
      return "nothing selected";
  }
  return "unknown";
}

Error::Error(ErrorCode code, std::string message, std::string context)
    : std::runtime_error(context.empty() ? message : fmt::format("{}: {}", context, message)),
      code_(code),
      message_(std::move(message)),
      context_(std::move(context)) {}

namespace {

// Messages reach terminals and JSON reports, which must not carry a stranger's bytes.
std::string Printable(std::string_view text) {
  std::string printable;
  for (char c : text) {
    if (c >= 0x20 && c <= 0x7e) {
      printable += c;
    } else {
      printable += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
    }
  }
  return printable;
}

int internal_error_exit_code = kInternalErrorExitCode;

}  // namespace

void ThrowParseError(std::string_view text, size_t column, std::string_view reason) {
  throw Error(ErrorCode::kParse, fmt::format("{} (in '{}')", Printable(reason), Printable(text)),
              fmt::format("column {}", column));
}

void CheckFailed(const char* file, int line, const char* condition, std::string_view message) {
  // Not fmt::print, which throws where standard error is closed.
  std::fputs(
      fmt::format("kvcheck: internal error at {}:{}: {} ({})\n", file, line, message, condition)
          .c_str(),
      stderr);
  std::fflush(stderr);
  std::_Exit(internal_error_exit_code);
}

void SetInternalErrorExitCode(int exit_code) { internal_error_exit_code = exit_code; }

}  // namespace kvcheck
