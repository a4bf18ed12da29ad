#include "tools/flashinfer/signature.h"

#include "reference/spec/error.h"
#include "reference/spec/text.h"

namespace kvcheck {
namespace {

std::string Trimmed(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return std::string(text);
}

Parameter ParseParameter(std::string_view text, size_t equals) {
  Parameter parameter;
  const std::string_view named = text.substr(0, equals);
  parameter.name = Trimmed(named.substr(0, named.find(':')));
  if (equals != std::string_view::npos) parameter.default_text = Trimmed(text.substr(equals + 1));
  return parameter;
}

}  // namespace

std::vector<Parameter> ParseSignature(std::string_view text) {
  if (text.empty() || text.front() != '(') ThrowParseError(text, 1, "a signature begins with (");
  std::vector<Parameter> parameters;
  bool is_positional = true;
  int depth = 0;
  char quote = 0;
  size_t first = 1;
  size_t equals = std::string_view::npos;  // of the parameter that begins at `first`
  const auto take = [&](size_t end) {
    const std::string_view part = text.substr(first, end - first);
    const std::string trimmed = Trimmed(part);
    if (trimmed.starts_with('*')) {
      is_positional = false;
    } else if (!trimmed.empty() && trimmed != "/") {
      parameters.push_back(
          ParseParameter(part, equals == std::string_view::npos ? equals : equals - first));
      parameters.back().is_positional = is_positional;
    }
    first = end + 1;
    equals = std::string_view::npos;
  };
  for (size_t at = 0; at < text.size(); ++at) {
    const char c = text[at];
    if (quote != 0) {
      if (c == '\\') {
        ++at;
      } else if (c == quote) {
        quote = 0;
      }
      continue;
    }
    switch (c) {
      case '\'':
      case '"':
        quote = c;
        break;
      case '(':
      case '[':
      case '{':
        ++depth;
        break;
      case ')':
      case ']':
      case '}':
        if (--depth == 0) {
          take(at);
          return parameters;
        }
        break;
      case ',':
        if (depth == 1) take(at);
        break;
      case '=':
        if (depth == 1 && equals == std::string_view::npos) equals = at;
        break;
      default:
        break;
    }
  }
  ThrowParseError(text, text.size(), "the signature does not end");
}

}  // namespace kvcheck
