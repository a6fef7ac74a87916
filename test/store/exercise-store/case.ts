/**
 * Declares contract cases: a name and a function, which gets a scene of its own that is closed afterwards.
 */
import {it} from 'node:test'
import {Scene, type OpenStore} from './scene.ts'

export type Case = (name: string, play: (scene: Scene) => Promise<void>) => void

/** Declares cases that each get a fresh store from `open`. */
export function caseWith(open: OpenStore): Case {
  return (name, play) => {
    it(name, async () => {
      const scene = await Scene.open(open)
      try {
        await play(scene)
      } finally {
        await scene.opened.close()
      }
    })
  }
}
