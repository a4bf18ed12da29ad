// kvcheck golden show: what a golden file holds, without judging anything.

#include <fmt/format.h>

#include <iostream>
#include <memory>

#include "golden/schema.h"
#include "golden/trace_recording.h"
#include "reference/spec/error.h"
#include "tools/corridor/stored_tensors.h"
#include "tools/kvcheck/commands.h"
#include "tools/report/shown_text.h"
#include "tools/report/summary.h"

namespace kvcheck {
namespace {

std::string TensorLine(const std::string& name, const Tensor& tensor) {
  return fmt::format("    {:<14} {} {}\n", NameText(name), Name(tensor.dtype),
                     NameText(ToString(tensor.shape)));
}

// A recorded trace, an operation a line with its answer.
std::string TraceText(const StoredFile& file, const GoldenCase& golden, const std::string& impl,
                      const CacheCase& c) {
  TensorMap outputs;
  for (const StoredAnswer& answer : FindAnswers(file.source().index(), golden.name, c)) {
    if (answer.impl != impl) continue;
    for (const auto& [name, dataset] : answer.outputs) {
      outputs[name] = ReadTensor(file.source(), dataset);
    }
  }
  const TraceRecording recording(c, std::move(outputs), file.path());
  std::string text;
  for (size_t i = 0; i < c.ops.size(); ++i) {
    const RecordedAnswer& answer = recording.answers()[i];
    std::string line = Print(c.ops[i]);
    using Status = RecordedAnswer::Status;
    if (answer.status == Status::kIdle) line += ": nothing, the slot is empty";
    if (answer.status == Status::kRefused) line += ": refused: " + answer.message;
    if (answer.status == Status::kUnsupported) line += ": not supported: " + answer.message;
    if (answer.status == Status::kDone && c.ops[i].kind == CacheOpKind::kTrim) {
      line += fmt::format(": {} gone", answer.number);
    }
    text += fmt::format("    {:>4}  {}\n", i + 1, NameText(line));
  }
  return text + fmt::format("    {} states of caches\n", recording.states());
}

std::string CaseText(const StoredFile& file, const GoldenCase& c) {
  std::string text = fmt::format("{}\n  case      {}\n", NameText(c.name), NameText(c.case_text));
  if (!c.inputs.empty()) text += "  inputs\n";
  for (const auto& [name, tensor] : c.inputs) text += TensorLine(name, tensor);
  if (!c.expected.empty()) text += "  expected\n";
  for (const auto& [name, expected] : c.expected) {
    text += TensorLine(name + (expected.lo ? " (hi + lo)" : ""), expected.hi);
  }
  for (const ObservedRecord& record : c.observed) {
    text += fmt::format("  observed  {}: {} {} on {}\n    expect         {}{}\n",
                        NameText(record.impl), NameText(record.implementation),
                        NameText(record.version), NameText(record.machine), NameText(record.expect),
                        record.reason.empty() ? "" : ": " + NameText(record.reason));
    if (!record.plan.empty()) {
      text += fmt::format("    plan           {}\n", NameText(record.plan));
    }
    if (!record.profile.empty()) {
      text += fmt::format("    profile        {}\n", NameText(record.profile));
    }
    for (const auto& [name, tensor] : record.outputs) text += TensorLine(name, tensor);
    if (c.case_text.starts_with("cache ")) {
      text += TraceText(file, c, record.impl, ParseCacheCase(c.case_text));
    }
  }
  return text;
}

std::string OneLine(const GoldenCase& c) {
  std::string observed;
  for (const ObservedRecord& record : c.observed) {
    observed += (observed.empty() ? "" : " ") + record.impl;
    if (record.expect != "PASS") observed += "(" + record.expect + ")";
  }
  return fmt::format("{}\n  {}\n  {}{}{}\n", NameText(c.name), NameText(c.case_text),
                     c.expected.empty() ? "no expected values" : "expected",
                     observed.empty() ? "" : ", observed: ", NameText(observed));
}

int Show(const std::string& path, const std::string& name) {
  const StoredFile file(path);
  const GoldenReader& golden = file.golden();
  if (!name.empty()) {
    std::cout << CaseText(file, golden.Outline(name)) << std::flush;
    return kExitPassed;
  }
  const GoldenFile& outline = golden.outline();
  std::cout << fmt::format("schema   {}\nsource   {}\ncommand  {}\ncontent  {}\ncases    {}\n\n",
                           outline.schema, NameText(outline.source), NameText(outline.command),
                           NameText(outline.content_hash), outline.cases.size());
  for (const GoldenCase& c : outline.cases) std::cout << OneLine(c);
  std::cout << std::flush;
  return kExitPassed;
}

}  // namespace

void AddGoldenShowCommand(CLI::App* golden, ChosenCommand* chosen) {
  struct Options {
    std::string file;
    std::string name;
  };
  auto options = std::make_shared<Options>();
  CLI::App* command = golden->add_subcommand("show", "List what a golden file holds");
  command->add_option("FILE", options->file, "A golden file")->required();
  command->add_option("NAME", options->name, "One case, with its tensors and plans");
  command->callback([=] { *chosen = [=] { return Show(options->file, options->name); }; });
}

}  // namespace kvcheck
