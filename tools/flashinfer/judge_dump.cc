#include "tools/flashinfer/judge_dump.h"

#include <fmt/format.h>

#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "reference/spec/error.h"
#include "reference/spec/glob.h"
#include "reference/spec/plan.h"
#include "reference/spec/profile.h"
#include "tools/flashinfer/attention_functions.h"
#include "tools/flashinfer/dump.h"
#include "tools/report/number_text.h"

namespace kvcheck {
namespace {

// One line of the report: what is shown of it, and how its verdict comes about.
struct Item {
  CaseResult shown;
  std::function<Verdict()> evaluate;
};

class Items {
 public:
  explicit Items(const FlashInferQuestion& question)
      : question_(question), include_(ParseGlobs(question.include)) {}

  void Add(const DumpedCall& call) {
    // What a wrapper is when it runs is known from all calls, chosen or not.
    const bool is_method = call.function.find('.') != std::string::npos;
    WrapperCalls wrapper = wrappers_[call.object];
    if (is_method && call.object.empty()) {
      wrapper = {nullptr, nullptr,
                 "its record has no self_id, and nothing else says which object it is a method of"};
    }
    const FunctionKind kind = KindOfFunction(call.function);
    const bool is_finished = call.state == DumpedCall::State::kFinished;
    if (is_method && call.object.empty() && kind != FunctionKind::kAttention) {
      // It may be a method of any of them.
      for (auto& [object, known] : wrappers_) {
        known.unknown = fmt::format("{} has no self_id in {}: it may have changed the wrapper",
                                    call.function, call.folder);
      }
    } else if (kind == FunctionKind::kState) {
      WrapperCalls& known = wrappers_[call.object];
      const DumpedCall* now = is_finished ? &call : nullptr;
      if (call.function.ends_with(".plan")) {
        known.plan = now;
        known.unknown.clear();
      } else {
        // The number of an object that is gone is given to a new one.
        known = {now, nullptr, ""};
      }
    } else if (kind == FunctionKind::kOther && is_method) {
      // begin_forward plans too, forward sets what plan has set.
      wrappers_[call.object].unknown = fmt::format(
          "{} was called on the wrapper behind its plan(), in {}, and is not understood: what it "
          "set there is not known",
          call.function, call.folder);
    }
    if (!Selects(call.folder, call.function)) return;
    if (call.state == DumpedCall::State::kUnfinished) {
      Put(call,
          WithoutJudging(Outcome::kCrashed,
                         call.function + ": inputs were saved and no outputs: the call raised "
                                         "an error, crashed or was killed"));
    } else if (kind == FunctionKind::kOther) {
      ++others_[call.function];
    } else if (kind == FunctionKind::kState) {
      ++states_[call.function];
    } else if (call.state == DumpedCall::State::kNotReplayed) {
      Put(call, WithoutJudging(Outcome::kUnsupported,
                               "captured into a CUDA graph of which no replay was dumped"));
    } else {
      CheckFormat(call);
      AddAttention(call, wrapper);
    }
  }

  // Before the first call is added.
  void SetUnread(const std::vector<UnreadCall>& unread) { unread_ = &unread; }

  void Add(const UnreadCall& call) {
    if (!Selects(call.folder, call.function)) return;
    items_.push_back({Shown(call.folder, "flashinfer"), [call] {
                        return WithoutJudging(
                            call.is_empty ? Outcome::kUnsupported : Outcome::kIllegalCase,
                            call.reason);
                      }});
  }

  void Judge(bool is_ordered, ResultSink* results) {
    for (const auto& [function, count] : others_) {
      const std::string reason =
          fmt::format("{}: no attention that is understood", Plural(count, "call"));
      items_.push_back({Shown(function, "flashinfer"),
                        [reason] { return WithoutJudging(Outcome::kUnsupported, reason); }});
    }
    if (items_.empty() && states_.empty()) {
      throw Error(ErrorCode::kSelection, "no call of it matches --include", question_.folder);
    }
    results->Begin(static_cast<int64_t>(items_.size()));
    for (Item& item : items_) {
      if (!results->Judge(std::move(item.shown), item.evaluate)) break;
    }
    for (const auto& [function, count] : states_) {
      results->AddNote(fmt::format("{} of {}, read for what a wrapper is when it runs",
                                   Plural(count, "call"), function));
    }
    if (!is_ordered) {
      results->AddNote(
          "session.jsonl does not name every call: plan() and run() are ordered by their time "
          "stamps, which are milliseconds");
    }
  }

 private:
  bool Selects(const std::string& folder, const std::string& function) const {
    return include_.empty() || MatchesAny(include_, folder) || MatchesAny(include_, function);
  }

  CaseResult Shown(const std::string& name, const std::string& implementation) const {
    CaseResult result;
    result.name = name;
    result.verdict.implementation = implementation;
    return result;
  }

  void Put(const DumpedCall& call, const Verdict& verdict) {
    items_.push_back(
        {Shown(call.folder, "flashinfer " + call.version), [verdict] { return verdict; }});
  }

  static void CheckFormat(const DumpedCall& call) {
    if (call.is_safetensors) return;
    throw Error(ErrorCode::kUnsupported,
                "its tensors are stored by torch.save, whose files are programs and are not read: "
                "set FLASHINFER_DUMP_SAFETENSORS=1 and dump again",
                call.path);
  }

  void AddAttention(const DumpedCall& call, const WrapperCalls& wrapper) {
    if (!wrapper.unknown.empty()) {
      return Put(call, WithoutJudging(Outcome::kUnsupported, wrapper.unknown));
    }
    if (const UnreadCall* unread = UnreadBefore(call, wrapper)) {
      return Put(call,
                 WithoutJudging(Outcome::kUnsupported,
                                fmt::format("{}, a call of the same class before it and behind the "
                                            "plan that is known, cannot be read: what it set is "
                                            "not known",
                                            unread->folder)));
    }
    CaseResult shown =
        Shown(call.folder, fmt::format("{} of flashinfer {}", call.function, call.version));
    shown.verdict.command =
        fmt::format("kvcheck flashinfer {} --include {}{}{}{}", ShellWord(question_.folder),
                    ShellWord(Glob::Of(call.folder)),
                    question_.plan.empty() ? "" : " --plan " + ShellWord(question_.plan),
                    question_.profile.empty() ? "" : " --profile " + ShellWord(question_.profile),
                    question_.arguments);
    items_.push_back({std::move(shown), [this, &call, wrapper] {
                        UnderstoodCall understood =
                            Understand(call, wrapper, !question_.plan.empty());
                        Settings settings = question_.settings;
                        settings.plan = question_.plan.empty() ? understood.plan : question_.plan;
                        settings.profile = question_.profile;
                        Verdict verdict = JudgeAttention(understood.call, settings);
                        understood.ThrowIfDamaged();
                        for (std::string& remark : understood.remarks) {
                          verdict.assumptions.push_back(std::move(remark) + ".");
                        }
                        return verdict;
                      }});
  }

  // A call that may have been one of plan() of the same wrapper, later than the plan that is known.
  // Folders begin with the time stamp, of a fixed width, and the process.
  const UnreadCall* UnreadBefore(const DumpedCall& call, const WrapperCalls& wrapper) const {
    const size_t dot = call.function.find('.');
    if (dot == std::string::npos || unread_ == nullptr) return nullptr;
    const std::string of_class = call.function.substr(0, dot + 1);
    const auto process = [](const std::string& folder) {
      const size_t pid = folder.find("_pid");
      return pid == std::string::npos ? "" : folder.substr(pid, folder.find('_', pid + 1) - pid);
    };
    for (const UnreadCall& unread : *unread_) {
      if (!unread.function.starts_with(of_class) || unread.function.ends_with(".run")) continue;
      if (process(unread.folder) != process(call.folder)) continue;
      const bool is_later_than_plan =
          wrapper.plan == nullptr || Stamp(unread.folder) >= Stamp(wrapper.plan->folder);
      if (is_later_than_plan && Stamp(unread.folder) <= Stamp(call.folder)) return &unread;
    }
    return nullptr;
  }
  static std::string Stamp(const std::string& folder) {
    return folder.substr(0, folder.find("_pid"));
  }

  const FlashInferQuestion& question_;
  const std::vector<UnreadCall>* unread_ = nullptr;
  std::vector<Glob> include_;
  std::map<std::string, WrapperCalls> wrappers_;
  std::vector<Item> items_;
  std::map<std::string, int64_t> others_;
  std::map<std::string, int64_t> states_;
};

}  // namespace

void JudgeDump(const FlashInferQuestion& question, ResultSink* results) {
  // Before the first result: a plan that does not parse is no fault of a call.
  if (!question.plan.empty()) ParsePlan(question.plan);
  ParseProfile(question.profile);
  const Dump dump = ReadDump(question.folder);
  Items items(question);
  items.SetUnread(dump.unread);
  for (const DumpedCall& call : dump.calls) items.Add(call);
  for (const UnreadCall& call : dump.unread) items.Add(call);
  items.Judge(dump.is_ordered, results);
}

}  // namespace kvcheck
