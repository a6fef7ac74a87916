/**
 * Declares contract cases: a name and a function, which gets a scene of its own that is closed afterwards.
 */
import {it} from 'node:test'
import {Scene, type OpenStore} from './scene.ts'

type Declare = (name: string, play: (scene: Scene) => Promise<void>) => void

export interface Case extends Declare {
  /** A case with many rows: it takes long, and has no statements that others do not have. */
  readonly withManyRows: Declare
}

/** Declares cases that each get a fresh store from `open`; those with many rows only if `hasManyRows`. */
export function caseWith(open: OpenStore, hasManyRows: boolean): Case {
  const declare: Declare = (name, play) => {
    it(name, async () => {
      const scene = await Scene.open(open)
      try {
        await play(scene)
      } finally {
        await scene.opened.close()
      }
    })
  }
  return Object.assign(declare, {withManyRows: hasManyRows ? declare : () => undefined})
}
